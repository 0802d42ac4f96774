//! Which URLs are accepted, and the errors for the others.

use super::{Endpoint, StoreSettings, check_url};

fn shown(url: &str) -> String {
    match check_url(url) {
        Ok(settings) => settings.shown(),
        Err(e) => format!("error: {e}"),
    }
}

#[test]
fn every_documented_form_is_accepted() {
    for url in [
        "redis://10.0.0.5",
        "redis://10.0.0.5:6379/0",
        "rediss://redis.example:6380",
        "redis://[::1]:6379",
        "redis+unix:///run/redis.sock",
        "redis+unix:///run/redis.sock?db=2",
    ] {
        assert_eq!(shown(url), url);
    }
    for (url, is) in [
        (
            "redis+sentinel://a,b:1,[::1]/mymaster/2",
            "mymaster of sentinels redis://a:26379, redis://b:1, redis://[::1]:26379",
        ),
        (
            "rediss+sentinel://u:pw@a/mymaster",
            "mymaster of sentinels rediss://a:26379",
        ),
        (
            "redis+cluster://u:pw@a,b:7000",
            "cluster of redis://u:***@a:6379, redis://u:***@b:7000",
        ),
        (
            "redis://a, redis://:p,w@b:1/2 ,rediss://c",
            "majority of redis://a, redis://:***@b:1/2, rediss://c",
        ),
    ] {
        assert_eq!(shown(url), is);
    }
    let Ok(StoreSettings::Sentinel(sentinel)) = check_url("rediss+sentinel://u:pw@a,b/mymaster/2")
    else {
        panic!("not a Sentinel");
    };
    let endpoint = |url| Endpoint::parse(url).expect("a sound URL");
    assert_eq!(
        sentinel.servers.endpoint,
        endpoint("rediss://u:pw@mymaster/2")
    );
    assert_eq!(sentinel.sentinels[1].endpoint, endpoint("rediss://b:26379"));
    assert_eq!(shown("sqlite:state/store.db"), "sqlite:state/store.db");
    assert_eq!(shown("sqlite:///var/x.db"), "sqlite:/var/x.db");
}

/// No tables of Unicode stand between the list and the resolver of the system.
#[test]
fn a_host_may_have_a_name_of_another_script() {
    assert_eq!(
        shown("redis://xn--bcher-kva.example:6379"),
        "redis://xn--bcher-kva.example:6379"
    );
    assert_eq!(
        shown("redis://b\u{fc}cher.example"),
        "redis://b%C3%BCcher.example"
    );
}

#[test]
fn no_password_is_ever_shown() {
    for url in [
        "redis://u:geheim@10.0.0.5:6379/0",
        "redis://:geheim@10.0.0.5",
        "redis://geheim@10.0.0.5",
        "redis://:ge/geheim@10.0.0.5",
        "redis://:ge@geheim@10.0.0.5",
        "redis://:geheim#x@10.0.0.5",
        "redis://u:geheim@",
        "redis+unix:///run/r.sock?pass=geheim&db=1",
        "redis+unix:///run/r.sock?x=1&pass=geheim",
        "redis+sentinel://u:geheim@a,b/mymaster",
        "redis+cluster://:geheim@a",
        "redis+cluster://:geheim@a/x",
        "redis+sentinel://:geheim@a",
        "redis+sentinel://:geh/eim@a/m",
        "redis://:geheim@a,redis://u:geheim@b",
        "redis://:geheim@a,redis://u:geheim@b,redis://geheim@c",
        "redis://:geheim@a,u:geheim@b",
        "http://u:geheim@a",
        "u:geheim@a:6379",
        "redis://u:geheim@host:notaport",
    ] {
        assert!(!shown(url).contains("geheim"), "{}", shown(url));
        if let Ok(settings) = check_url(url) {
            assert!(!format!("{settings:?}").contains("geheim"));
        }
    }
}

#[test]
fn errors_say_what_would_be_right() {
    let all = [
        "",
        "localhost:6379",
        "redis:10.0.0.5:6379",
        "redis:6379",
        "redis:/localhost",
        "rediss:10.0.0.5:6380",
        "/var/lib/store.db",
        "http://a",
        "redis+sentinel://a:26379",
        "redis+sentinel://a:26379/m y",
        "redis+sentinel://a/m/x",
        "redis+sentinel://a,,b/m",
        "redis+sentinel://a,A.:26379/m",
        "redis+sentinel://a:x/m",
        "redis+sentinel://a:99999/m",
        "redis+cluster://a,b/1",
        "redis+cluster://a,redis://b",
        "redis+cluster://u:p/w@a",
        "redis://a,b",
        "redis://a,redis://b",
        "redis://a,redis://A:6379/2,redis://c",
        "redis://a,redis://b,sqlite:/c",
        "redis://localhost,redis://127.0.0.1,redis://c",
        "redis+unix:///a,redis://b,redis+unix:///a?db=2",
        "a:1,b:2",
        "redis://",
        "redis://:6379",
        "redis://a/x",
        "redis://a?x=1",
        "redis+unix://run/redis.sock",
        "redis+unix:///r.sock?password=x",
        "redis://:a/b@host",
        "redis://host:port",
        "redis://host:99999",
        "rediss://host#insecure",
        "sqlite:",
        "sqlite://x.db",
    ]
    .map(shown)
    .join("\n");
    insta::assert_snapshot!(all);
}
