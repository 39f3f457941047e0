//! What the log tells of a session's grants: each one that is given or taken back, and what they add up to.
//!
//! Invariant: a list of grants is stored together with the events that make it of the one before.

use crate::base::limit;
use crate::protocol::{EventBody, GrantId, Granted, RequestId, RevokeReason};
use crate::store::{Grant, GrantSubject};

/// Adds one to those of a session. What makes way for it: what has ended, what says the same, and the oldest when there are too
/// many. The events that tell it. None: it cannot be told, because a path in it is no text.
pub(super) fn give(grants: &mut Vec<Grant>, grant: Grant, request: RequestId) -> Option<Vec<EventBody>> {
    let mut events = Vec::new();
    let mut tell = |old: &Grant, reason| {
        events.push(EventBody::PermissionRevoked { grant_id: old.id.clone(), reason });
        false
    };
    grants.retain(|old| match () {
        () if !old.holds(grant.created_at) => tell(old, RevokeReason::Expired),
        () if old.says_the_same(&grant) => tell(old, RevokeReason::Replaced),
        () => true,
    });
    if grants.len() >= limit::GRANTS_MAX {
        tell(&grants.remove(0), RevokeReason::Surplus);
    }
    events.push(EventBody::PermissionGranted(told(&grant, request)?));
    grants.push(grant);
    Some(events)
}

/// Takes one back. None: there is none of that id.
pub(super) fn take_back(grants: &mut Vec<Grant>, id: &GrantId) -> Option<EventBody> {
    let at = grants.iter().position(|grant| grant.id == *id)?;
    let grant_id = grants.remove(at).id;
    Some(EventBody::PermissionRevoked { grant_id, reason: RevokeReason::Client })
}

/// What was granted somewhere else is asked again here. The events that tell it.
pub(super) fn drop_imported(grants: &mut Vec<Grant>) -> Vec<EventBody> {
    let gone = std::mem::take(grants).into_iter();
    gone.map(|old| EventBody::PermissionRevoked { grant_id: old.id, reason: RevokeReason::Imported }).collect()
}

/// Does to a list what an event tells.
pub(super) fn replay(grants: &mut Vec<Grant>, event: &EventBody) {
    match event {
        EventBody::PermissionGranted(granted) => grants.push(grant_of(granted)),
        EventBody::PermissionRevoked { grant_id, .. } => grants.retain(|grant| grant.id != *grant_id),
        _ => {}
    }
}

/// Whether the log can tell what a grant is about: paths that are no text have no place in it.
pub(super) fn can_be_told(on: &GrantSubject) -> bool {
    match on {
        GrantSubject::Any | GrantSubject::Command(_) => true,
        GrantSubject::CommandIn { directory, .. } => directory.to_str().is_some(),
        GrantSubject::Paths(paths) => paths.iter().all(|path| path.to_str().is_some()),
    }
}

fn told(grant: &Grant, request_id: RequestId) -> Option<Granted> {
    let (command, cwd, paths) = match &grant.on {
        GrantSubject::Any => (None, None, None),
        GrantSubject::Command(command) => (Some(command.clone()), None, None),
        GrantSubject::CommandIn { command, directory } => (Some(command.clone()), Some(directory.clone()), None),
        GrantSubject::Paths(paths) => (None, None, Some(paths.clone())),
    };
    can_be_told(&grant.on).then(|| Granted {
        grant_id: grant.id.clone(),
        request_id,
        tool_name: grant.tool.clone(),
        command,
        cwd,
        paths,
        created_at: grant.created_at,
        expires_at: grant.expires_at,
    })
}

fn grant_of(granted: &Granted) -> Grant {
    let on = match (&granted.command, &granted.cwd, &granted.paths) {
        (Some(command), Some(directory), _) => {
            GrantSubject::CommandIn { command: command.clone(), directory: directory.clone() }
        }
        (Some(command), None, _) => GrantSubject::Command(command.clone()),
        (None, _, Some(paths)) => GrantSubject::Paths(paths.clone()),
        (None, _, None) => GrantSubject::Any,
    };
    let (id, tool) = (granted.grant_id.clone(), granted.tool_name.clone());
    Grant { id, created_at: granted.created_at, expires_at: granted.expires_at, tool, on }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(on: GrantSubject, created_at: u64, expires_at: Option<u64>) -> Grant {
        Grant { id: GrantId::generate(), created_at, expires_at, tool: "t".into(), on }
    }

    #[test]
    fn what_is_told_adds_up_to_what_is_held() {
        let command = |text: &str| GrantSubject::Command(text.into());
        let mut all = vec![
            grant(GrantSubject::Any, 1, None),
            grant(command("a"), 2, Some(10)),
            grant(GrantSubject::CommandIn { command: "a".into(), directory: "d".into() }, 3, None),
            grant(GrantSubject::Paths(vec!["/a".into(), "/b".into()]), 4, Some(5)),
            grant(command("b"), 6, None),
            grant(command("b"), 7, Some(20)),
        ];
        all.extend((0..=limit::GRANTS_MAX).map(|n| grant(command(&format!("c{n}")), 30, None)));
        let (mut held, mut told) = (Vec::new(), Vec::new());
        let mut reasons = Vec::new();
        for one in all {
            for event in give(&mut held, one, RequestId::generate()).expect("text") {
                replay(&mut told, &event);
                if let EventBody::PermissionRevoked { reason, .. } = event {
                    reasons.push(reason);
                }
            }
            assert_eq!(held, told);
        }
        for reason in [RevokeReason::Expired, RevokeReason::Replaced, RevokeReason::Surplus] {
            assert!(reasons.contains(&reason), "{reason:?}");
        }
        assert_eq!(held.len(), limit::GRANTS_MAX);
        let id = held[3].id.clone();
        replay(&mut told, &take_back(&mut held, &id).expect("there"));
        assert!(take_back(&mut held, &id).is_none());
        assert_eq!(held, told);
        drop_imported(&mut held).iter().for_each(|event| replay(&mut told, event));
        assert!(held.is_empty() && told.is_empty());
    }

    #[test]
    fn a_path_that_is_no_text_is_not_granted() {
        use std::os::unix::ffi::OsStringExt as _;
        let path = std::ffi::OsString::from_vec(vec![b'/', 0xff]).into();
        let mut held = Vec::new();
        assert!(give(&mut held, grant(GrantSubject::Paths(vec![path]), 1, None), RequestId::generate()).is_none());
        assert!(held.is_empty());
    }
}
