//! `[[maintenance]]`, and the token for announcing more over the API.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use toml::Spanned;

use super::ConfigError;
use super::raw::Wrong;
use crate::diagnose::stages::maintenance::Window;
use crate::maintenance::RawWindow;

/// The windows of the file. One without a begin has always been open.
pub(super) fn check_maintenance(raw: &[Spanned<RawWindow>]) -> Result<Vec<Window>, Wrong> {
    let windows = raw.iter().enumerate().map(|(index, window)| {
        window.get_ref().check(Timestamp(0)).map_err(|error| {
            let (field, message) = error.split_once(": ").unwrap_or(("", &error));
            Wrong {
                span: window.span(),
                field: format!("maintenance[{index}].{field}"),
                message: message.to_owned(),
            }
        })
    });
    windows.collect()
}

/// The first line of the token file, without space around it.
pub(super) fn read_token(
    file: Option<&PathBuf>,
    beside: &Path,
) -> Result<Option<Arc<str>>, ConfigError> {
    let Some(file) = file.map(|file| beside.join(file)) else {
        return Ok(None);
    };
    let failed = |source| ConfigError::Unreadable {
        file: file.clone(),
        source,
    };
    let text = std::fs::read_to_string(&file).map_err(failed)?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        let message = "expected a token on the first line";
        return Err(failed(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            message,
        )));
    }
    Ok(Some(token.into()))
}
