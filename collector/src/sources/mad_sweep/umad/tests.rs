//! The kernel's side of the device played by a socket, and ports as sysfs shows them.

use std::os::unix::net::UnixDatagram;

use super::super::mad::{Attribute, Path as Route, get};
use super::*;

fn pair(header: usize) -> (Umad, UnixDatagram) {
    let (ours, kernel) = UnixDatagram::pair().expect("a pair of sockets");
    let umad = Umad {
        device: Device::over(ours.into()),
        header,
        pkey_index: 3,
        timeout: Duration::from_millis(250),
        subnet_agent: 5,
        performance_agent: 6,
    };
    (umad, kernel)
}

#[test]
fn a_question_carries_agent_time_out_queue_pair_key_and_partition() {
    for (header, to, agent, queue_pair, key, lid) in [
        (
            64,
            Destination::Lid(0x1234),
            6_u32,
            1,
            [0x80, 1, 0, 0],
            [0x12, 0x34],
        ),
        (
            64,
            Destination::Directed(Route::HERE),
            5,
            0,
            [0; 4],
            [0xff; 2],
        ),
        (56, Destination::Lid(7), 6, 1, [0x80, 1, 0, 0], [0, 7]),
    ] {
        let (mut umad, kernel) = pair(header);
        let mad = get(&to, Attribute::ClassPortInfo, 9);
        umad.send(&to, &mad).expect("sent");
        let mut packet = [0xee; 400];
        let bytes = kernel.recv(&mut packet).expect("received");
        assert_eq!(bytes, header + 256);
        assert_eq!(packet[0..4], agent.to_ne_bytes());
        assert_eq!(packet[8..12], 250_u32.to_ne_bytes());
        assert_eq!(packet[12..16], [0; 4], "the kernel repeats nothing");
        assert_eq!(packet[20..24], [0, 0, 0, queue_pair]);
        assert_eq!(packet[24..28], key);
        assert_eq!(packet[28..30], lid);
        if header == 64 {
            assert_eq!(packet[56..58], 3_u16.to_ne_bytes());
        }
        assert_eq!(packet[header..bytes], mad);
    }
}

#[test]
fn an_answer_a_time_out_and_silence_are_told_apart() {
    let (mut umad, kernel) = pair(64);
    let mut mad = [0; MAD_BYTES];
    let mut receive = |umad: &mut Umad| {
        let found = umad.receive(&mut mad, Duration::from_millis(20));
        (found.expect("the device works"), mad[12])
    };
    assert_eq!(receive(&mut umad), (Received::Nothing, 0));
    let mut packet = [0; 64 + 256];
    packet[64 + 12] = 42;
    kernel.send(&packet).expect("sent");
    assert_eq!(receive(&mut umad), (Received::Answer, 42));
    packet[4..8].copy_from_slice(&110_u32.to_ne_bytes());
    packet[64 + 12] = 43;
    kernel.send(&packet).expect("sent");
    assert_eq!(receive(&mut umad), (Received::TimedOut, 43));
    kernel.send(&packet[..10]).expect("sent");
    assert_eq!(
        receive(&mut umad).0,
        Received::Nothing,
        "less than a header"
    );
}

/// A `/sys` with a port that is down, one that is active with the default partition third, and a RoCE one.
fn sys() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("written");
    };
    for (umad, device, port, layer, state) in [
        ("umad0", "mlx5_0", 1, "InfiniBand", "1: DOWN"),
        ("umad1", "mlx5_1", 1, "InfiniBand", "1: DOWN"),
        ("umad2", "mlx5_1", 2, "InfiniBand", "4: ACTIVE"),
        ("umad3", "mlx5_2", 1, "Ethernet", "4: ACTIVE"),
        ("issm0", "mlx5_0", 1, "InfiniBand", "1: DOWN"),
    ] {
        put(
            &format!("class/infiniband_mad/{umad}/ibdev"),
            &format!("{device}\n"),
        );
        put(
            &format!("class/infiniband_mad/{umad}/port"),
            &format!("{port}\n"),
        );
        let about = format!("class/infiniband/{device}/ports/{port}");
        put(&format!("{about}/link_layer"), &format!("{layer}\n"));
        put(&format!("{about}/state"), &format!("{state}\n"));
    }
    for (index, key) in ["0x8001", "0x0000", "0xffff", "0x0000"].iter().enumerate() {
        let path = format!("class/infiniband/mlx5_1/ports/2/pkeys/{index}");
        put(&path, &format!("{key}\n"));
    }
    folder
}

#[test]
fn a_port_is_chosen_by_device_by_number_or_because_it_is_active() {
    let folder = sys();
    let ports = ports(folder.path(), Path::new("/dev"));
    assert_eq!(ports.len(), 3, "{ports:?}");
    for (wanted, expected) in [
        ("auto", Some("/dev/infiniband/umad2")),
        ("mlx5_0", Some("/dev/infiniband/umad0")),
        ("mlx5_1", Some("/dev/infiniband/umad2")),
        ("mlx5_1:1", Some("/dev/infiniband/umad1")),
        ("mlx5_2", None),
        ("mlx5_0:2", None),
    ] {
        let found = choose(&ports, wanted);
        let found = found.as_ref().map(|port| port.path.to_string_lossy());
        assert_eq!(found.ok().as_deref(), expected, "{wanted}");
    }
    let auto = choose(&ports, "auto").expect("a port");
    assert_eq!(auto.pkey_index, 2);
}

#[test]
fn an_error_says_what_there_is_and_what_to_do() {
    let folder = sys();
    let all = ports(folder.path(), Path::new("/dev"));
    let said = choose(&all, "mlx5_7")
        .expect_err("no such port")
        .to_string();
    assert!(
        said.contains("mlx5_7")
            && said.contains("mlx5_0:1 (not active), mlx5_1:1 (not active), mlx5_1:2"),
        "{said}"
    );
    let none = choose(&[], "auto").expect_err("no port").to_string();
    assert!(none.contains("ib_umad"), "{none}");
    let port = UmadPort {
        device: String::from("mlx5_0"),
        port: 1,
        path: folder.path().join("umad0"),
        active: true,
        pkey_index: 0,
    };
    let missing = Umad::open(&port, Duration::from_millis(1)).expect_err("no device");
    assert!(missing.to_string().contains("umad0: "), "{missing}");
    fs::write(&port.path, "").expect("a file");
    let wrong = Umad::open(&port, Duration::from_millis(1)).expect_err("a plain file");
    assert!(
        wrong.to_string().contains("register for subnet management"),
        "{wrong}"
    );
}
