//! IP addresses of an interface: the routing family's reply, or what `ip` prints of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::sources::netlink::{Message, Request, fixed};
use crate::sources::sysfs::Miss;

/// `RTM_GETADDR` and its reply, `RTM_NEWADDR`.
const GET: u16 = 22;
const NEW: u16 = 20;
/// `sizeof(struct ifaddrmsg)`: family, length of the prefix, flags, scope, index.
const HEADER: usize = 8;
const FLAGS: usize = 2;
const SCOPE: usize = 3;
const INDEX: std::ops::Range<usize> = 4..8;
/// `IFA_ADDRESS`: the peer's on a point-to-point interface, where `IFA_LOCAL` is ours.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const ALL_FLAGS: u16 = 8;
/// `RT_SCOPE_UNIVERSE`.
const GLOBAL: u8 = 0;
/// `IFA_F_DADFAILED`, `IFA_F_TENTATIVE`: not to be used, or not yet.
const UNUSABLE: u32 = 0x08 | 0x40;
/// `IFA_F_TEMPORARY` of IPv6; of IPv4 the same bit is a second address, which is as good as the first.
const TEMPORARY: u32 = 0x01;

/// The request for all addresses of all interfaces: kernels support no narrower one, unless strict checking is enabled.
pub(super) fn question() -> Request {
    Request::dump(GET, &[0; HEADER])
}

/// The address that a message reports, if it is one of the interface of this index by which others may reach
/// it.
pub(super) fn answered(message: &Message<'_>, index: u32) -> Result<Option<IpAddr>, Miss> {
    if message.kind != NEW {
        return Err(Miss::Unparsed);
    }
    let header = message.payload.get(..HEADER).ok_or(Miss::Unparsed)?;
    if header[INDEX] != index.to_ne_bytes() || header[SCOPE] != GLOBAL {
        return Ok(None);
    }
    let attributes = message.attributes(HEADER)?;
    let value = attributes.get(LOCAL).or_else(|| attributes.get(ADDRESS));
    let value = value.ok_or(Miss::Unparsed)?.value;
    let flags = attributes
        .number(ALL_FLAGS)
        .and_then(|flags| u32::try_from(flags).ok());
    let flags = flags.unwrap_or(header[FLAGS].into());
    let (ip, refused): (IpAddr, u32) = match value.len() {
        4 => {
            let bytes: [u8; 4] = fixed(value, 0).ok_or(Miss::Unparsed)?;
            (Ipv4Addr::from(bytes).into(), UNUSABLE)
        }
        16 => {
            let bytes: [u8; 16] = fixed(value, 0).ok_or(Miss::Unparsed)?;
            (Ipv6Addr::from(bytes).into(), UNUSABLE | TEMPORARY)
        }
        _ => return Err(Miss::Unparsed),
    };
    Ok(Some(ip).filter(|_| flags & refused == 0))
}

/// The addresses in what `ip -j addr show dev IF` prints.
pub(super) fn printed(text: &str) -> Option<Vec<IpAddr>> {
    let json: Value = serde_json::from_str(text).ok()?;
    let list = json.get(0)?.get("addr_info")?.as_array()?;
    let is = |one: &Value, flag: &str| one.get(flag).and_then(Value::as_bool) == Some(true);
    let usable = list.iter().filter(|one| {
        one.get("scope").and_then(Value::as_str) == Some("global")
            && !["tentative", "dadfailed", "temporary"]
                .into_iter()
                .any(|flag| is(one, flag))
    });
    let found = usable.map(|one| one.get("local")?.as_str()?.parse().ok());
    let mut found: Vec<IpAddr> = found.collect::<Option<_>>()?;
    found.sort_unstable();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ip_prints_is_read_but_for_what_others_cannot_use() {
        let text = r#"[{"ifindex":3,"ifname":"rail0","addr_info":[
            {"family":"inet","local":"10.0.1.2","prefixlen":24,"scope":"global","label":"rail0"},
            {"family":"inet","local":"10.0.0.9","prefixlen":24,"scope":"global","secondary":true},
            {"family":"inet6","local":"fd00::2","prefixlen":64,"scope":"global"},
            {"family":"inet6","local":"fd00::77","prefixlen":64,"scope":"global","temporary":true},
            {"family":"inet6","local":"fd00::3","prefixlen":64,"scope":"global","tentative":true},
            {"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]}]"#;
        let found = printed(text).expect("addresses");
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.9", "10.0.1.2", "fd00::2"]);
        assert_eq!(printed(r#"[{"addr_info":[]}]"#), Some(Vec::new()));
        for broken in [
            "",
            "[]",
            "{}",
            r#"[{"addr_info":[{"scope":"global","local":"x"}]}]"#,
        ] {
            assert_eq!(printed(broken), None, "{broken}");
        }
    }
}
