//! The program that a release is about: how it is built, and what it needs of the system, read from its own bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program and where it runs.
pub(crate) struct Program {
    pub(crate) bytes: Vec<u8>,
    pub(crate) system: System,
    pub(crate) processor: Processor,
}

#[derive(Debug, PartialEq)]
pub(crate) enum System {
    /// Any Linux: the program brings everything.
    Static,
    /// A Linux with glibc 2.`minor` or newer.
    Glibc {
        minor: u32,
        loader: String,
    },
    MacOs,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Processor {
    X86_64,
    Aarch64,
}

impl Program {
    /// # Errors
    /// When the file cannot be read, or is no program for a supported system.
    pub(crate) fn read(path: &Path) -> Result<Program, String> {
        let bytes = fs::read(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        let (system, processor) = platform(&bytes).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Program {
            bytes,
            system,
            processor,
        })
    }

    /// As rustc calls the platform.
    pub(crate) fn triple(&self) -> String {
        let system = match self.system {
            System::Static => "unknown-linux-musl",
            System::Glibc { .. } => "unknown-linux-gnu",
            System::MacOs => "apple-darwin",
        };
        format!("{}-{system}", self.processor.pick("x86_64", "aarch64"))
    }

    /// What the system must have, in words.
    pub(crate) fn needs(&self) -> String {
        match &self.system {
            System::Static => "any Linux".to_owned(),
            System::Glibc { minor, .. } => format!("Linux with glibc 2.{minor} or newer"),
            System::MacOs => "macOS".to_owned(),
        }
    }
}

impl Processor {
    /// One of two names.
    pub(crate) fn pick(self, x86_64: &'static str, aarch64: &'static str) -> &'static str {
        match self {
            Processor::X86_64 => x86_64,
            Processor::Aarch64 => aarch64,
        }
    }
}

/// What a program's header says.
fn platform(bytes: &[u8]) -> Result<(System, Processor), String> {
    const NEITHER: &str = "neither a 64-bit ELF program nor a Mach-O program, for x86-64 or aarch64";
    let number = |at: usize, size: usize| {
        let bytes = at.checked_add(size).and_then(|end| bytes.get(at..end));
        let bytes = bytes.ok_or("the program's header leads out of the file")?;
        let number = bytes
            .iter()
            .rev()
            .fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).map_err(|_| "the program's header leads out of the file")
    };
    if bytes.starts_with(&[0xcf, 0xfa, 0xed, 0xfe]) {
        return match number(4, 4)? {
            0x0100_0007 => Ok((System::MacOs, Processor::X86_64)),
            0x0100_000c => Ok((System::MacOs, Processor::Aarch64)),
            _ => Err(NEITHER.to_owned()),
        };
    }
    // 64 bits, least significant byte first.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(NEITHER.to_owned());
    }
    let processor = match number(18, 2)? {
        62 => Processor::X86_64,
        183 => Processor::Aarch64,
        _ => return Err(NEITHER.to_owned()),
    };
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        const INTERPRETER: usize = 3;
        let header = first.saturating_add(index * size);
        if number(header, 4)? != INTERPRETER {
            continue;
        }
        let (at, length) = (number(header + 8, 8)?, number(header + 32, 8)?);
        let path = at.checked_add(length).and_then(|end| bytes.get(at..end));
        let path = path.ok_or("the program's loader is outside of the file")?;
        let loader = String::from_utf8_lossy(path).trim_end_matches('\0').to_owned();
        let minor = glibc(bytes).ok_or(format!("it needs {loader}, and no version of glibc"))?;
        return Ok((System::Glibc { minor, loader }, processor));
    }
    Ok((System::Static, processor))
}

/// The newest version of glibc that a symbol is of: the linker writes them as `GLIBC_2.34`.
fn glibc(bytes: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"\0GLIBC_2.";
    let starts = bytes
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, window)| *window == MARK);
    let minors = starts.filter_map(|(at, _)| {
        let digits = bytes[at + MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.map(|byte| char::from(*byte)).collect::<String>().parse().ok()
    });
    minors.max()
}

/// The loader and the libraries of a dynamic program, as files of this machine.
pub(crate) fn libraries(program: &Path, loader: &str) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.map_err(|why| format!("cannot start ldd: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || text.contains("not found") {
        return Err(format!("ldd does not find what {} needs:\n{text}", program.display()));
    }
    let paths = text.lines().filter_map(|line| {
        let (_, path) = line.split_once("=> ")?;
        Some(PathBuf::from(path.split(" (").next()?))
    });
    Ok([PathBuf::from(loader)].into_iter().chain(paths).collect())
}

/// Builds the program: static where this machine can, else as usual; and says what was built, and why it is not static.
pub(crate) fn build(root: &Path, target: &Path) -> Result<(PathBuf, String), String> {
    let mut command = crate::cargo();
    command.current_dir(root);
    command.args(["rustc", "--profile", "production", "--locked"]);
    command.args(["--package", "kubewright-cli", "--bin", "kubewright"]);
    let (folder, said) = match musl() {
        Ok(triple) => {
            command.args(["--target", &triple]);
            // A program without a loader relocates itself, 24 bytes for each address; packed, a few bits.
            command.args(["--", "-Clink-arg=-Wl,-z,pack-relative-relocs"]);
            (target.join(&triple), format!("built a static program, for {triple}"))
        }
        Err(why) => (
            target.to_owned(),
            format!("built a program for this machine's own C library: {why}"),
        ),
    };
    let built = command.status().map_err(|why| format!("cannot start cargo: {why}"))?;
    if !built.success() {
        return Err("the program does not compile; what cargo printed says why".to_owned());
    }
    Ok((folder.join("production/kubewright"), said))
}

/// The target of a static program, when this machine can build for it; else why not.
fn musl() -> Result<String, String> {
    if std::env::consts::OS != "linux" {
        return Err(format!("{} has no static programs", std::env::consts::OS));
    }
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let asked = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", &triple])
        .output();
    let installed = asked.is_ok_and(|asked| Path::new(String::from_utf8_lossy(&asked.stdout).trim()).is_dir());
    if !installed {
        return Err(format!("{triple} is not installed: rustup target add {triple}"));
    }
    let variable = format!("CC_{}", triple.replace('-', "_"));
    if std::env::var_os(&variable).is_none() && Command::new("musl-gcc").arg("--version").output().is_err() {
        return Err(format!(
            "no C compiler for musl: install musl-tools, or name one with {variable}"
        ));
    }
    Ok(triple)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_the_platform() {
        let this = Program::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(this.processor.pick("x86_64", "aarch64"), std::env::consts::ARCH);
        assert_eq!(this.system == System::MacOs, std::env::consts::OS == "macos");

        // A header without anything behind it.
        let elf = |machine: u8, length: usize| {
            let mut elf = b"\x7fELF\x02\x01".to_vec();
            elf.resize(length, 0);
            elf[18] = machine;
            elf
        };
        assert_eq!(platform(&elf(62, 64)), Ok((System::Static, Processor::X86_64)));
        assert_eq!(platform(&elf(183, 64)), Ok((System::Static, Processor::Aarch64)));
        let mac = [0xcf, 0xfa, 0xed, 0xfe, 0x0c, 0, 0, 1];
        assert_eq!(platform(&mac), Ok((System::MacOs, Processor::Aarch64)));
        for wrong in [
            b"#!/bin/sh".to_vec(),
            Vec::new(),
            elf(3, 64),
            elf(62, 30),
            mac[..6].to_vec(),
        ] {
            assert!(platform(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_dynamic_program_says_its_loader_and_glibc() {
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(64, 0);
        (elf[18], elf[32], elf[54], elf[56]) = (62, 64, 56, 1);
        elf.resize(64 + 56, 0);
        (elf[64], elf[64 + 8], elf[64 + 32]) = (3, 120, 10);
        elf.extend(b"/lib/ld.so");
        assert!(platform(&elf).is_err(), "another C library");
        elf.extend(b"\0GLIBC_2.4\0GLIBC_2.17\0GLIBC_2.2.5\0");
        let loader = "/lib/ld.so".to_owned();
        assert_eq!(
            platform(&elf),
            Ok((System::Glibc { minor: 17, loader }, Processor::X86_64))
        );
        elf[64 + 32] = 255;
        assert!(platform(&elf).is_err(), "the loader's name leads out of the file");
    }
}
