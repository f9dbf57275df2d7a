//! Forwarding tables from a file: used for the shape of the subnet that they were read of, and for no other.

use railscope_model::identity::Guid;

use super::super::tables::{TablesFile, note_swept};
use super::*;

const TABLE: &str = "\
Unicast lids [0x0-0x8] of switch Lid 7 guid 0x0000000000000001 (leaf-1):
0x0001 033 : (Channel Adapter portguid 0x0002c903000a1b2d: 'host1 HCA-1')
1 valid lids dumped
";

fn switches(count: u64) -> Subnet {
    let section = |guid: u64| {
        format!(
            "switchguid=0x{guid:x}({guid:x})\nSwitch\t41 \"S-{guid:016x}\"\t\t# \"leaf-{guid}\" enhanced port 0 lid 7 lmc 0\n\n"
        )
    };
    parse_ibnetdiscover(&(1..=count).map(section).collect::<String>())
}

/// When a file was written.
fn written(path: &Path) -> Timestamp {
    unix(stamp(path).expect("a file").0)
}

fn status(state: &State, key: &SourceKey) -> (SourceStatus, String) {
    let sources = state.sources();
    let source = sources.get(key).cloned().unwrap_or_default();
    (source.status, source.problem.unwrap_or_default())
}

#[tokio::test]
async fn tables_hold_for_the_shape_that_they_were_written_after() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("lfts.txt");
    let state = State::new(&crate::config::Config::default(), || NOW);
    let mut file = TablesFile::new(path.clone());
    let key = file.key();
    let mut one = switches(1);
    assert!(!file.refresh(NOW).await);
    file.attach(&mut one, Timestamp(1), &state);
    let (missing, said) = status(&state, &key);
    assert_eq!((missing, &one.forwarding), (SourceStatus::Failed, &None));
    assert!(said.contains("lfts.txt"), "{said}");

    std::fs::write(&path, TABLE).expect("write");
    assert!(file.refresh(NOW).await);
    assert!(!file.refresh(NOW).await, "unchanged");
    let at = written(&path);
    file.attach(&mut one, Timestamp(1), &state);
    let forwarding = one.forwarding.take().expect("tables");
    assert_eq!(forwarding.read_at, at);
    assert_eq!(forwarding.tables[&Guid(1)].port(1), Some(33));
    assert_eq!(status(&state, &key), (SourceStatus::Ok, String::new()));

    // The same shape later on, then another one that the tables are not of.
    let later = at.plus_seconds(60.0);
    file.attach(&mut one, later, &state);
    assert!(one.forwarding.is_some());
    let mut two = switches(2);
    file.attach(&mut two, later, &state);
    assert_eq!(two.forwarding, None);
    let (old, said) = status(&state, &key);
    assert_eq!(old, SourceStatus::Partial);
    assert!(
        said.contains("older than the subnet's last change"),
        "{said}"
    );
}

#[tokio::test]
async fn a_flaw_is_told_with_its_line_and_a_file_of_something_else_has_no_table() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("lfts.txt");
    let state = State::new(&crate::config::Config::default(), || NOW);
    let mut file = TablesFile::new(path.clone());
    let flawed = format!(
        "{TABLE}{}",
        TABLE
            .replace("0x0000000000000001", "0x2")
            .replace("033", "333")
    );
    for (text, expected, tables) in [
        (
            flawed.as_str(),
            "lfts.txt: line 5: port: expected 0 to 255, or UNREACHABLE, found",
            1,
        ),
        ("", "expected the output of dump_fts, found no table", 0),
        (
            "hello\n",
            "lfts.txt: line 1: line: expected the name of a switch",
            0,
        ),
    ] {
        std::fs::write(&path, text).expect("write");
        file.refresh(NOW).await;
        let mut subnet = switches(1);
        file.attach(&mut subnet, Timestamp(1), &state);
        let (status, said) = status(&state, &file.key());
        assert_ne!(status, SourceStatus::Ok);
        assert!(said.contains(expected), "{said}");
        let found = subnet
            .forwarding
            .map_or(0, |forwarding| forwarding.tables.len());
        assert_eq!(found, tables, "{text}");
    }
}

#[tokio::test]
async fn a_file_of_tables_that_changed_lets_the_subnet_be_read_again() {
    let folder = tempfile::tempdir().expect("folder");
    let subnet = folder.path().join("subnet.txt");
    let tables = folder.path().join("lfts.txt");
    std::fs::write(&subnet, "one").expect("write");
    std::fs::write(&tables, TABLE).expect("write");
    let mut source = source(SubnetFrom::File(subnet));
    source.tables_file = Some(TablesFile::new(tables.clone()));
    assert!(source.read(NOW).await.expect("file").0.is_some());
    assert!(
        source.read(NOW).await.expect("file").0.is_none(),
        "unchanged"
    );
    std::fs::write(&tables, format!("\n{TABLE}")).expect("write");
    assert!(source.read(NOW).await.expect("file").0.is_some());
}

#[test]
fn an_own_sweep_says_how_many_switches_have_a_table() {
    let state = State::new(&crate::config::Config::default(), || NOW);
    let key = ("forwarding", String::from("mlx5_0"));
    let mut subnet = switches(2);
    note_swept(&subnet, "mlx5_0", &state);
    let (partial, said) = status(&state, &key);
    assert_eq!(partial, SourceStatus::Partial);
    assert!(said.starts_with("0 of 2 switches"), "{said}");
    let tables = [1, 2].map(|guid| (Guid(guid), Default::default()));
    subnet.forwarding = Some(Forwarding {
        tables: Arc::new(tables.into()),
        read_at: Timestamp(5),
    });
    note_swept(&subnet, "mlx5_0", &state);
    assert_eq!(status(&state, &key), (SourceStatus::Ok, String::new()));
}
