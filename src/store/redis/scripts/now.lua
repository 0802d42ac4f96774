-- The store's clock.
--
-- Reply milliseconds since the epoch

return now
