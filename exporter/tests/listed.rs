//! Machines that were recorded as text: what `lspci` and `ethtool` printed, as the sysfs that they printed it from.
mod ethtool;
mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::common::captures;
use tree::{link, page, write};

/// Names of the switches of `ACSCtl` in the exposition, in `lspci`'s order.
const CONTROLS: [&str; 7] = [
    "source_validation",
    "translation_blocking",
    "request_redirect",
    "completion_redirect",
    "upstream_forwarding",
    "egress_control",
    "direct_translated",
];

/// A function as `lspci` describes it, by address.
#[derive(Default)]
struct Listed {
    /// Class, vendor and device as the kernel prints them.
    ids: [String; 3],
    text: String,
    parent: Option<String>,
}

impl Listed {
    /// The text after a word, up to a comma, a blank or the end of the line.
    fn after(&self, line: &str, word: &str) -> Option<&str> {
        let line = self
            .text
            .lines()
            .find_map(|text| text.trim().strip_prefix(line))?;
        let (_, rest) = line.split_once(word)?;
        rest.split([',', ' ', '(']).find(|text| !text.is_empty())
    }

    fn is(&self, vendor: &str, class: &str) -> bool {
        self.ids[1] == vendor && self.ids[0].starts_with(class)
    }
}

/// Parent of each function, from the bridges' bus numbers.
fn folder(functions: &BTreeMap<String, Listed>, address: &str) -> String {
    match &functions[address].parent {
        Some(parent) => format!("{}/{address}", folder(functions, parent)),
        None => format!("sys/devices/pci{}/{address}", &address[..7]),
    }
}

fn plant(root: &Path, functions: &BTreeMap<String, Listed>) {
    for (address, function) in functions {
        let at = folder(functions, address);
        let [class, vendor, device] = &function.ids;
        for (file, text) in [("class", class), ("vendor", vendor), ("device", device)] {
            write(root, &format!("{at}/{file}"), format!("{text}\n"));
        }
        let node = function.after("NUMA node:", "").unwrap_or("-1");
        write(root, &format!("{at}/numa_node"), format!("{node}\n"));
        for (line, which) in [("LnkSta:", "current"), ("LnkCap:", "max")] {
            let of = |word| function.after(line, word);
            if let (Some(speed), Some(width)) = (of("Speed "), of("Width x")) {
                let speed = speed.trim_end_matches("GT/s");
                let point = if speed.contains('.') { "" } else { ".0" };
                let text = format!("{speed}{point} GT/s PCIe\n");
                write(root, &format!("{at}/{which}_link_speed"), text);
                write(
                    root,
                    &format!("{at}/{which}_link_width"),
                    format!("{width}\n"),
                );
            }
        }
        if let Some(space) = config(function) {
            write(root, &format!("{at}/config"), space);
        }
        link(root, &format!("sys/bus/pci/devices/{address}"), &at);
    }
}

/// A configuration space with the settings that `lspci` read from the real one.
fn config(function: &Listed) -> Option<Vec<u8>> {
    let code = |bytes: &str| {
        bytes
            .parse::<u16>()
            .ok()
            .map(|bytes| (bytes / 128).ilog2() as u16)
    };
    let supported = code(function.after("DevCap:", "MaxPayload ")?)?;
    let set = function
        .text
        .lines()
        .skip_while(|line| !line.trim().starts_with("DevCtl:"));
    let set: String = set.take(3).collect();
    let bytes = |word| code(set.split_once(word)?.1.split(' ').next()?);
    let control = bytes("MaxPayload ")? << 5
        | bytes("MaxReadReq ").unwrap_or(0) << 12
        | u16::from(set.contains("RlxdOrd+")) << 4
        | u16::from(set.contains("ExtTag+")) << 8;
    let mut space = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x06, &[0x10, 0x00]);
    put(0x34, &[0x60]);
    put(0x60, &[0x10, 0x00, 0x02, 0x00, supported as u8]);
    put(0x68, &control.to_le_bytes());
    if let Some(controls) = access_control(function) {
        put(0x100, &[0x0d, 0x00, 0x01, 0x00]);
        let bits = controls.iter().enumerate();
        let word = bits.fold(0_u16, |word, (bit, on)| word | u16::from(*on) << bit);
        put(0x106, &word.to_le_bytes());
    }
    Some(space)
}

/// The switches of `ACSCtl` in the order of their bits.
fn access_control(function: &Listed) -> Option<Vec<bool>> {
    let line = function
        .text
        .lines()
        .find_map(|line| line.trim().strip_prefix("ACSCtl:"))?;
    Some(
        line.split_whitespace()
            .map(|word| word.ends_with('+'))
            .collect(),
    )
}

/// An address with its domain, which `lspci` omits if there is only one.
fn whole(address: &str) -> String {
    match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    }
}

/// `lspci -nn`: one line a function, `[class]` and `[vendor:device]` in brackets.
fn numbered(text: &str) -> BTreeMap<String, Listed> {
    let functions = text.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        let brackets: Vec<_> = rest
            .split('[')
            .skip(1)
            .filter_map(|part| Some(part.split_once(']')?.0))
            .collect();
        let (vendor, device) = brackets.iter().find_map(|word| word.split_once(':'))?;
        let ids = [
            format!("0x{}00", brackets[0]),
            format!("0x{vendor}"),
            format!("0x{device}"),
        ];
        let text = line.to_owned();
        Some((
            whole(address),
            Listed {
                ids,
                text,
                parent: None,
            },
        ))
    });
    functions.collect()
}

#[test]
fn clouds_list_their_gpus_and_virtual_functions() {
    let test = "clouds_list_their_gpus_and_virtual_functions";
    for (file, least) in [("sysfs/lspci.nn.a100", 8), ("sysfs/lspci.nn.a10", 1)] {
        let Some(path) = captures(test, file) else {
            return;
        };
        let functions = numbered(&fs::read_to_string(path).expect("text"));
        let temp = tempfile::tempdir().expect("a temporary directory");
        plant(temp.path(), &functions);
        // What a GPU has a path to; the recording does not show which functions carry RDMA.
        let page = page(temp.path());
        let shown = |begin: &str| -> Vec<String> {
            let series = page.keys().filter_map(|key| key.strip_prefix(begin));
            series.map(str::to_owned).collect()
        };
        let gpus: Vec<_> = functions
            .iter()
            .filter(|(_, listed)| listed.is("0x10de", "0x0302"))
            .collect();
        assert!(gpus.len() >= least, "{file}: {} GPUs", gpus.len());
        let expected: Vec<_> = gpus
            .iter()
            .enumerate()
            .map(|(ordinal, (address, _))| format!("{address},gpu,{ordinal},,,}}"))
            .collect();
        assert_eq!(shown("pcie_path_info{"), expected, "{file}");
        let virtual_functions: Vec<_> = functions
            .iter()
            .filter(|(_, listed)| listed.text.contains("Virtual Function"))
            .map(|(address, _)| format!("{address},virtual,}}"))
            .collect();
        assert_eq!(shown("nic_sriov_info{,"), virtual_functions, "{file}");
        println!(
            "{file}: {} functions, {} GPUs, {} virtual NICs",
            functions.len(),
            gpus.len(),
            virtual_functions.len()
        );
    }
}

/// `lspci -vvv`: paragraphs, names in place of numbers.
fn described(text: &str) -> BTreeMap<String, Listed> {
    let mut functions = BTreeMap::new();
    let mut behind = BTreeMap::new();
    for text in text.split("\n\n") {
        let Some((address, what)) = text.split_once(' ') else {
            continue;
        };
        let address = whole(address);
        let what = what.lines().next().unwrap_or_default();
        let class = match what {
            _ if what.starts_with("3D controller:") => "0x030200",
            _ if what.starts_with("Ethernet controller:") => "0x020000",
            _ if what.starts_with("PCI bridge:") => "0x060400",
            _ => "0x088000",
        };
        let vendor = match what {
            _ if what.contains(": NVIDIA ") => "0x10de",
            _ if what.contains(": Mellanox ") => "0x15b3",
            _ => "0xffff",
        };
        let listed = Listed {
            ids: [class, vendor, "0x0000"].map(str::to_owned),
            text: text.to_owned(),
            parent: None,
        };
        if let Some(bus) = listed.after("Bus: primary=", "secondary=") {
            behind.insert(format!("{}:{bus}", &address[..4]), address.clone());
        }
        functions.insert(address, listed);
    }
    for (address, listed) in &mut functions {
        listed.parent = behind.get(&address[..7]).cloned();
    }
    functions
}

#[test]
fn an_h100_server_has_the_links_and_settings_that_lspci_read() {
    let test = "an_h100_server_has_the_links_and_settings_that_lspci_read";
    let Some(path) = captures(test, "sysfs/gpud-lspci-vvv.txt.gz") else {
        return;
    };
    let mut text = String::new();
    let file = fs::File::open(path).expect("opens");
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("text");
    let functions = described(&text);
    let temp = tempfile::tempdir().expect("a temporary directory");
    plant(temp.path(), &functions);
    let nics: Vec<_> = functions
        .iter()
        .filter(|(_, listed)| listed.is("0x15b3", "0x02"))
        .collect();
    for (number, (address, _)) in nics.iter().enumerate() {
        let device = format!("sys/class/infiniband/mlx5_{number}");
        write(
            temp.path(),
            &format!("{device}/ports/1/link_layer"),
            "Ethernet\n",
        );
        link(
            temp.path(),
            &format!("{device}/device"),
            &folder(&functions, address),
        );
    }
    let gpus: Vec<_> = functions
        .iter()
        .filter(|(_, listed)| listed.is("0x10de", "0x0302"))
        .collect();
    assert_eq!((gpus.len(), nics.len()), (8, 12));
    let mut page = page(temp.path());
    page.retain(|series, _| series.starts_with("pcie_"));
    let mut expected = BTreeMap::new();
    for (kind, ends) in [("gpu", &gpus), ("nic", &nics)] {
        for (number, (address, _)) in ends.iter().enumerate() {
            let name = if kind == "gpu" {
                number.to_string()
            } else {
                format!("mlx5_{number}")
            };
            expect_path(&functions, address, (kind, &name), &mut expected);
            let mut above = &functions[*address].parent;
            while let Some(bridge) = above {
                expect_path(&functions, bridge, ("bridge", ""), &mut expected);
                above = &functions[bridge].parent;
            }
        }
    }
    let lost: Vec<_> = expected
        .iter()
        .filter(|(key, value)| page.get(*key) != Some(value))
        .collect();
    let invented: Vec<_> = page
        .keys()
        .filter(|key| !expected.contains_key(*key))
        .collect();
    assert!(
        lost.is_empty() && invented.is_empty(),
        "lost {lost:#?}\ninvented {invented:#?}"
    );
    println!(
        "lspci -vvv: {} functions, {} series, each as printed",
        functions.len(),
        page.len()
    );
}

/// What the exposition must contain for one function.
fn expect_path(
    functions: &BTreeMap<String, Listed>,
    address: &str,
    (kind, name): (&str, &str),
    expected: &mut BTreeMap<String, f64>,
) {
    let function = &functions[address];
    let mut above = Vec::new();
    let mut parent = &function.parent;
    while let Some(bridge) = parent {
        above.push(bridge.as_str());
        parent = &functions[bridge].parent;
    }
    let ends = |end: Option<&&str>| end.map_or("", |end| *end).to_owned();
    let (parent, root) = (ends(above.first()), ends(above.last()));
    let node = function.after("NUMA node:", "").unwrap_or_default();
    expected.insert(
        format!("pcie_path_info{{{address},{kind},{name},{parent},{root},{node}}}"),
        1.0,
    );
    for (line, which) in [("LnkSta:", ""), ("LnkCap:", "max_")] {
        let of = |word| function.after(line, word);
        if let (Some(speed), Some(width)) = (of("Speed "), of("Width x")) {
            let number = |text: &str| {
                text.trim_end_matches("GT/s")
                    .parse::<f64>()
                    .expect("a number")
            };
            expected.insert(
                format!("pcie_link_{which}transfers_per_second{{{address}}}"),
                number(speed) * 1e9,
            );
            expected.insert(
                format!("pcie_link_{which}width_lanes{{{address}}}"),
                number(width),
            );
        }
    }
    expect_settings(address, function, expected);
    if kind == "bridge" {
        return;
    }
    let redirects = |bridge: &&&str| {
        let controls = access_control(&functions[**bridge]);
        controls.is_some_and(|controls| controls[2] || controls[3])
    };
    let hops = above.iter().filter(redirects).count();
    expected.insert(
        format!("pcie_acs_redirecting_hops{{{address}}}"),
        hops as f64,
    );
}

fn expect_settings(address: &str, function: &Listed, expected: &mut BTreeMap<String, f64>) {
    let lines = function.text.lines().map(str::trim);
    let set: Vec<_> = lines
        .skip_while(|line| !line.starts_with("DevCtl:"))
        .take(3)
        .collect();
    let set = set.join(" ");
    let switch = |word: &str| {
        if set.contains(&format!("{word}+")) {
            "on"
        } else {
            "off"
        }
    };
    let controls = access_control(function).map(|controls| {
        let names = CONTROLS.iter().zip(&controls);
        let on: Vec<_> = names
            .filter(|(_, on)| **on)
            .map(|(name, _)| *name)
            .collect();
        if on.is_empty() {
            "off".to_owned()
        } else {
            on.join("+")
        }
    });
    let controls = controls.unwrap_or_else(|| "none".to_owned());
    let (relaxed, tags) = (switch("RlxdOrd"), switch("ExtTag"));
    expected.insert(
        format!("pcie_config_info{{{address},{relaxed},{tags},{controls}}}"),
        1.0,
    );
    let bytes = |text: &str, word: &str| {
        let (_, rest) = text.split_once(word).expect(word);
        rest.split(' ')
            .next()
            .and_then(|bytes| bytes.parse().ok())
            .expect("bytes")
    };
    let supported = function.after("DevCap:", "MaxPayload ").expect("a payload");
    for (series, value) in [
        ("max_payload_bytes", bytes(&set, "MaxPayload ")),
        (
            "max_payload_supported_bytes",
            supported.parse().expect("bytes"),
        ),
        ("max_read_request_bytes", bytes(&set, "MaxReadReq ")),
    ] {
        expected.insert(format!("pcie_{series}{{{address}}}"), value);
    }
}
