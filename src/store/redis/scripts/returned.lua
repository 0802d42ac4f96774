-- Notifies all hosts that an occurrence of a job was returned undecided.
--
-- ARGV  1 channel, 2 job
-- Reply 1

-- Without the right to publish, other hosts find it at their next look.
redis.pcall('PUBLISH', ARGV[1], ARGV[2])
return 1
