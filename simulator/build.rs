//! Compiles the mock NVML library, current and old driver, so that `src/nvml.rs` can embed both.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "nvml-mock/src";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    let out = PathBuf::from(variable("OUT_DIR")?);
    compile(&out.join("libnvidia-ml.so.1"), None)?;
    compile(
        &out.join("libnvidia-ml-old-driver.so.1"),
        Some("feature=\"old-driver\""),
    )
}

/// One cdylib. Not a Cargo dependency, because its `nvml*` symbols must not be linked into our own binary.
fn compile(output: &Path, cfg: Option<&str>) -> Result<(), Box<dyn Error>> {
    if variable("CARGO_CFG_TARGET_OS")? != "linux" || variable("CARGO_CFG_TARGET_ENV")? == "musl" {
        // No dlopen of a cdylib there: `install` then reports it, and everything else still builds.
        std::fs::write(output, [])?;
        return Ok(());
    }
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc.args([
        "--crate-name",
        "nvidia_ml",
        "--crate-type",
        "cdylib",
        "--edition",
        "2024",
    ]);
    // Always optimized and stripped: the mock runs in the hot loop of the code under test, and is embedded twice.
    rustc.args([
        "-C",
        "opt-level=2",
        "-C",
        "panic=abort",
        "-C",
        "strip=symbols",
        "-C",
        "codegen-units=1",
    ]);
    if variable("TARGET")? != variable("HOST")? {
        rustc.arg("--target").arg(variable("TARGET")?);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    if let Some(cfg) = cfg {
        rustc.args(["--cfg", cfg]);
    }
    // Relative (Cargo runs build scripts in the package's folder), so that no path of this machine enters the file.
    rustc.arg(format!("{SOURCE}/lib.rs")).arg("-o").arg(output);
    let status = rustc
        .status()
        .map_err(|error| format!("cannot run {rustc:?}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{rustc:?} failed: {status}").into())
    }
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("Cargo did not set {name}: {error}"))
}
