//! Whatever the text: a list or errors, never a panic, and errors that can be shown.

use proptest::prelude::*;

use super::read_with;

const EXAMPLE: &str = include_str!("../../../jobs.example.yaml");
const MISTAKES: &str = include_str!("mistakes.yaml");

fn check(text: &str) {
    match read_with(text, &[("HOME", "/h")]) {
        Ok(_) => {}
        Err(errors) => {
            let lines = text.lines().count();
            assert!(errors.iter().count() > 0);
            for error in errors.iter() {
                assert!(error.line <= lines.max(1) + 1, "{error}");
            }
            assert!(errors.to_string().contains("error"));
        }
    }
}

/// One change of a text, at a share of its length.
fn change(text: &mut String, at: f64, what: usize, insert: &str) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place anywhere in a short text"
    )]
    let mut at = (text.len() as f64 * at) as usize;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    match what {
        0 => text.insert_str(at, insert),
        1 => {
            text.truncate(at);
        }
        2 => {
            let end = text[at..].find('\n').map_or(text.len(), |n| at + n);
            text.replace_range(at..end, insert);
        }
        _ => {
            if let Some(c) = text[at..].chars().next() {
                text.replace_range(at..at + c.len_utf8(), insert);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_never_panics(text in "\\PC{0,200}") {
        check(&text);
    }

    #[test]
    fn yamlish_garbage_never_panics(
        text in "(jobs|store|defaults|name|lock|<<|[-:{}\\[\\],&*!|>'\"#$ \n\ta-c0-9é])*"
    ) {
        check(&text);
    }

    #[test]
    fn a_damaged_list_never_panics(
        mistakes in any::<bool>(),
        changes in proptest::collection::vec(
            (0.0..1.0, 0_usize..4, "[-:{}\\[\\],&*!|>'\"#$~%@` \n\ta0é]{0,3}"),
            1..4,
        ),
    ) {
        let mut text = if mistakes { MISTAKES } else { EXAMPLE }.to_owned();
        for (at, what, insert) in changes {
            change(&mut text, at, what, &insert);
        }
        check(&text);
    }
}

#[test]
fn hostile_yaml_is_refused_in_bounded_time_and_memory() {
    let mut laughs = String::from("x-a: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (name, before) in ["b", "c", "d", "e", "f", "g", "h", "i"]
        .iter()
        .zip("abcdefgh".chars())
    {
        let many = vec![format!("*{before}"); 10].join(", ");
        laughs.push_str(&format!("x-{name}: &{name} [{many}]\n"));
    }
    for text in [
        laughs.as_str(),
        "x-a: &a [*a]\njobs: []\n",
        "jobs: &a { <<: *a }\n",
        &"[".repeat(10_000),
        &"{a: ".repeat(10_000),
        &"- ".repeat(10_000),
        "a: *\n",
        "%YAML 9.9\n---\njobs: []\n",
        "\0\0\0",
        "jobs:\n- &a &b x\n",
        "--- \n...\n---\n",
    ] {
        check(text);
    }
}

#[test]
fn aliases_cannot_make_a_small_file_into_a_huge_tree() {
    let text = format!(
        "x-a: &a [{}]\nx-b: [{}]\njobs: []\n",
        vec!["x"; 2000].join(", "),
        vec!["*a"; 1000].join(", "),
    );
    let Err(errors) = read_with(&text, &[]) else {
        panic!("two million values were read")
    };
    assert!(errors.to_string().contains("aliases"), "{errors}");
}

#[test]
fn thousands_of_jobs_are_read_and_an_inherited_mistake_told_once() {
    let mut text = String::from("defaults: { timeout: soon }\njobs:\n");
    for n in 0..5_000 {
        text.push_str(&format!(
            "  - {{ name: job-{n}, schedule: \"{} * * * *\", command: [x, y], nice: 3 }}\n",
            n % 60
        ));
    }
    assert!(read_with(&text, &[]).is_err());
    let list = read_with(&text.replace("soon", "1h"), &[]);
    assert_eq!(list.map_or(0, |l| l.jobs.len()), 5_000);
}
