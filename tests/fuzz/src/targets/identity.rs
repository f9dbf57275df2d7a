//! Names of parts, as used in labels, queries and files.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use railscope_model::identity::{GpuIndex, Guid, NodeName, NvLink, Part, PciAddress, PortName};
use railscope_model::identity::{RdmaPort, SwitchName};
use railscope_model::units::{LinkSpeed, PortRate};

/// One name a line, read as each kind of name; what was read is written so that it is read as the same again.
pub(crate) fn identity(bytes: &[u8]) {
    for text in String::from_utf8_lossy(bytes).lines() {
        comes_back::<Part>(text);
        comes_back::<PciAddress>(text);
        comes_back::<Guid>(text);
        comes_back::<NodeName>(text);
        comes_back::<SwitchName>(text);
        comes_back::<PortName>(text);
        comes_back::<RdmaPort>(text);
        comes_back::<GpuIndex>(text);
        comes_back::<NvLink>(text);
        comes_back::<LinkSpeed>(text);
        reads::<PortRate>(text);
    }
}

fn reads<T: FromStr>(text: &str) -> Option<T>
where
    T::Err: Display,
{
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn comes_back<T: FromStr + Display + Debug + PartialEq>(text: &str)
where
    T::Err: Display,
{
    if let Some(value) = reads::<T>(text) {
        let again = value.to_string().parse::<T>().ok();
        assert_eq!(again.as_ref(), Some(&value), "{text:?}");
    }
}
