//! `MAILTO` and `MAILFROM`: whom cron mails becomes a target of notifications.

use super::model::{Crontabs, FieldValue, Fields, Mailbox, MailboxTarget};
use super::naming;
use crate::config::spelling;

impl MailboxTarget {
    /// The fields of the target.
    pub(super) fn fields(&self) -> Fields {
        let to = match self.mailbox.to.as_slice() {
            [one] => FieldValue::text(one),
            several => FieldValue::List(several.to_vec()),
        };
        let from = self.mailbox.from.as_ref();
        let from = from.map(|from| ("from", FieldValue::text(from)));
        [("mail", to)].into_iter().chain(from).collect()
    }
}

/// Returns the name of the target of a mailbox, which is added if it is new.
pub(super) fn target(mailbox: Mailbox, crontabs: &mut Crontabs) -> String {
    let known = (crontabs.targets.iter()).find(|target| target.mailbox == mailbox);
    if let Some(target) = known {
        return target.name.clone();
    }
    let name = naming::numbered(&name(&mailbox), |name| {
        crontabs.targets.iter().all(|target| target.name != name)
    });
    crontabs.targets.push(MailboxTarget {
        name: name.clone(),
        mailbox,
    });
    name
}

/// The local part of the first address.
fn name(mailbox: &Mailbox) -> String {
    let address = mailbox.to.first().map_or("", String::as_str);
    let local = address.split('@').next().unwrap_or_default();
    let name = spelling::in_ascii(local);
    match name.trim_matches(['.', '-', '_']) {
        // `notify: none` means nobody.
        "" | "none" => "mail".to_owned(),
        name => name.to_owned(),
    }
}
