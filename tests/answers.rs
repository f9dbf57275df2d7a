//! `docs/answers.md` shows what the commands print for files with a fault: each command of it is run.

use std::process::Command;

use crate::support::root;

/// The commands of the document, each with the lines that it is documented to print.
fn answers(document: &str) -> Vec<(&str, Vec<&str>)> {
    let blocks = document.split("```console\n$ railscope ").skip(1);
    let answer = |block| {
        let block: &str = block;
        let block = block.split("\n```").next().unwrap_or_default();
        let mut lines = block.lines();
        (lines.next().unwrap_or_default(), lines.collect())
    };
    blocks.map(answer).collect()
}

#[test]
fn every_answer_of_the_document_is_what_its_command_prints() {
    let document = std::fs::read_to_string(root().join("docs/answers.md")).expect("the document");
    let answers = answers(&document);
    assert_eq!(answers.len(), 10);
    for (command, lines) in answers {
        let output = Command::new(env!("CARGO_BIN_EXE_railscope"))
            .args(command.split_whitespace())
            .current_dir(root())
            .output()
            .expect("runs");
        let printed = [output.stderr, output.stdout].concat();
        let printed = String::from_utf8_lossy(&printed);
        let mut rest: &str = &printed;
        // Omitted parts are shown as three dots.
        for part in lines.iter().flat_map(|line| line.split("...")) {
            let found = rest.find(part.trim_end());
            let Some(at) = found else {
                panic!("{command}: {part:?} is not in\n{printed}");
            };
            rest = &rest[at + part.trim_end().len()..];
        }
    }
}
