//! The subnet from files that change and programs that fail.

mod tables;

use super::*;

const NOW: Timestamp = Timestamp(u64::MAX);

fn source(from: SubnetFrom) -> Source {
    let second = Duration::from_secs(1);
    Source::new(SubnetSource {
        from,
        interval: second,
        timeout: second,
        node_name_map: None,
        forwarding_file: None,
    })
}

fn program(script: &str) -> Source {
    source(SubnetFrom::Command(
        ["sh", "-c", script].map(String::from).to_vec(),
    ))
}

impl Source {
    /// One read of a source of text.
    async fn text(&mut self, now: Timestamp) -> Result<Option<Sweep>, SubnetError> {
        Ok(self.look(now).await?.map(|look| match look {
            Look::Text(sweep) => sweep,
            Look::Swept(..) => panic!("an own sweep"),
        }))
    }
}

#[tokio::test]
async fn a_port_that_is_not_there_is_an_error_that_says_so() {
    let device = String::from("no_such_0");
    let mut source = source(SubnetFrom::Device(device, Settings::default()));
    let error = source.text(NOW).await.expect_err("no port").to_string();
    assert!(error.contains("no InfiniBand port no_such_0"), "{error}");
}

#[tokio::test]
async fn a_file_is_read_when_it_changed_and_is_as_old_as_it_was_written() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("subnet.txt");
    let mut source = source(SubnetFrom::File(path.clone()));
    let missing = source.text(NOW).await.expect_err("no file");
    assert!(missing.to_string().contains("subnet.txt"), "{missing}");
    std::fs::write(&path, "one").expect("write");
    let sweep = source.text(NOW).await.expect("file").expect("new");
    assert_eq!(sweep.text, "one");
    let written = std::fs::metadata(&path)
        .and_then(|data| data.modified())
        .expect("time");
    assert_eq!(sweep.at, unix(written));
    assert_eq!(source.text(NOW).await.expect("file"), None, "unchanged");
    std::fs::write(&path, "two, changed").expect("write");
    assert_eq!(
        source
            .text(NOW)
            .await
            .expect("file")
            .map(|sweep| sweep.text)
            .as_deref(),
        Some("two, changed")
    );
}

#[tokio::test]
async fn a_file_from_the_future_is_of_now() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("subnet.txt");
    std::fs::write(&path, "one").expect("write");
    let sweep = source(SubnetFrom::File(path))
        .text(Timestamp(5))
        .await
        .expect("file")
        .expect("new");
    assert_eq!(sweep.at, Timestamp(5));
}

#[tokio::test]
async fn a_program_is_read_and_its_complaints_apart_from_it() {
    let mut source = program("echo warning >&2; printf 'a \\377 b'");
    let sweep = source
        .text(Timestamp(7))
        .await
        .expect("output")
        .expect("always new");
    assert_eq!(
        (sweep.text.as_str(), sweep.complaints.as_str(), sweep.at),
        ("a \u{fffd} b", "warning", Timestamp(7))
    );
}

#[tokio::test]
async fn a_program_that_fails_says_what_it_complained_of() {
    let error = program("echo half; echo no umad >&2; exit 3")
        .text(NOW)
        .await
        .expect_err("rc 3");
    let said = error.to_string();
    assert!(
        said.contains("exit status: 3") && said.contains("no umad"),
        "{said}"
    );
    let error = source(SubnetFrom::Command(vec![String::from("no-such-program")]))
        .text(NOW)
        .await;
    assert!(
        error
            .expect_err("no program")
            .to_string()
            .contains("no-such-program")
    );
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_all_that_it_started() {
    let folder = tempfile::tempdir().expect("folder");
    let pid = folder.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; wait", pid.display());
    let error = program(&script).text(NOW).await.expect_err("hangs");
    assert!(
        error.to_string().contains("did not end within 1s"),
        "{error}"
    );
    let pid = std::fs::read_to_string(&pid).expect("pid");
    let stat = format!("/proc/{}/stat", pid.trim());
    // A killed process may stay a zombie briefly, until init has waited for it.
    let gone = |_: &u32| {
        std::thread::sleep(Duration::from_millis(50));
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(" Z "))
    };
    assert!((0..40).any(|attempt| gone(&attempt)), "{pid} lives");
}

#[tokio::test]
async fn a_source_that_hangs_or_fails_is_noted_with_its_status() {
    for (script, expected) in [
        ("sleep 60", SourceStatus::Timeout),
        ("exit 3", SourceStatus::Failed),
    ] {
        let config = SubnetSource {
            from: SubnetFrom::Command(["sh", "-c", script].map(String::from).to_vec()),
            interval: Duration::from_secs(60),
            timeout: Duration::from_millis(100),
            node_name_map: None,
            forwarding_file: None,
        };
        let now = || Timestamp(1_000);
        let state = Arc::new(State::new(&crate::config::Config::default(), now));
        let (events, _inbox) = mpsc::channel(1);
        let following = tokio::spawn(follow(config, events, Arc::clone(&state)));
        let mut status = SourceStatus::Waiting;
        while status == SourceStatus::Waiting {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let sources = state.sources();
            let source = sources.get(&("subnet", String::from("sh")));
            status = source.map_or(status, |source| source.status);
        }
        assert_eq!(status, expected, "{script}");
        following.abort();
    }
}

#[tokio::test]
async fn names_of_the_map_are_given_to_nodes_and_a_damaged_map_leaves_them() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("names");
    let missing = NameFile::new(path.clone()).refresh().await;
    assert!(missing.is_err_and(|error| error.contains("names")));
    std::fs::write(&path, "0x1 \"ibsw1\"\n").expect("write");
    let mut file = NameFile::new(path.clone());
    let (names, changed) = file.refresh().await.expect("a map");
    assert!(changed);
    let text = "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x1\nswitchguid=0x1(1)\nSwitch\t41 \"S-0000000000000001\"\t\t# \"MF0;leaf-1:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n";
    let look = Look::Text(Sweep {
        text: text.to_owned(),
        complaints: String::new(),
        at: NOW,
    });
    let taken = take(
        look,
        &State::new(&crate::config::Config::default(), || NOW),
        Some(names),
    )
    .await;
    let subnet = taken.expect("a subnet").subnet;
    assert_eq!(subnet.nodes[0].description, "ibsw1");
    std::fs::write(&path, "a line that names nothing\n").expect("write");
    let (names, changed) = file.refresh().await.expect("the old map");
    let mut again = parse_ibnetdiscover(text);
    assert_eq!((names.apply(&mut again), changed), (1, false));
}
