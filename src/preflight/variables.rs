//! Variables of `notify` and `ping` that are not set where the list was read.

use super::{Finding, Subject, ids};

/// A hint: the daemon may have the variables from its unit. Without them it does not start.
pub(super) fn look(subject: &Subject) -> Vec<Finding> {
    let Some(list) = &subject.list else {
        return Vec::new();
    };
    let unset = list.unset_variables.iter();
    unset
        .map(|name| {
            ids::VARIABLES.hint(
                name,
                "`notify` or `ping` needs this variable, and it is not set here: the targets and pings \
                 with it were not checked, and a daemon without it does not start",
                "nothing if the daemon has it from its unit (`EnvironmentFile=`); else set it there",
            )
        })
        .collect()
}
