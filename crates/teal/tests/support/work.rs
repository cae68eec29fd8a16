//! Work that goes on while machines are killed and cables pulled: a C library that is unpacked,
//! built and thrown away, again and again.

use super::{Mounted, PATIENCE, World, digest, run_program, wait_until};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Files torn by a crash do not count as built: the last step of each rule is a rename.
const MAKEFILE: &str = "\
objects := $(patsubst src/%.c,out/%.o,$(wildcard src/*/*.c))
out/library.a: $(objects)
\trm -f $@.new && ar rcD $@.new $(sort $^) && mv $@.new $@
out/%.o: src/%.c
\tmkdir -p $(@D) && cc -c -g0 -DZSTD_DISABLE_ASM -o $@.new $< && mv $@.new $@
clean:
\trm -rf out
";

/// `$1` is where, `$2` the sources.
const UNPACK: &str = r#"
    cd "$1"
    if ! [ -e src ]; then rm -rf new; mkdir new; tar xf "$2/sources.tar" -C new; mv new src; fi
    cmp -s Makefile "$2/Makefile" || cp "$2/Makefile" .
"#;

/// Without end; `rounds` counts what was built.
const WITHOUT_END: &str = r#"
    n=0
    while :; do
        n=$((n + 1))
        (unpack "$1" "$2") && make -s out/library.a && ln -f out/library.a "kept$((n % 3))" && echo "$n" > "$3"
        make -s clean
        [ $((n % 2)) = 0 ] && rm -rf src
    done
"#;

/// A library's sources, and what becomes of them.
#[derive(Debug)]
pub(crate) struct Library {
    place: PathBuf,
    built: (u64, u128),
}

impl Library {
    /// From what this program was built of; `None`, on record as skipped, where that is not at hand
    /// or no compiler is.
    pub(crate) fn new(test: &str, world: &World) -> Option<Self> {
        let place = world.path("library");
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("Makefile"), MAKEFILE).unwrap();
        let script = r#"
            from=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/zstd-sys-*/zstd/lib | tail -n 1)
            cd "$from" && tar cf "$1/sources.tar" common decompress *.h
        "#;
        let packed =
            run_program(Command::new("sh").args(["-ec", script, "sh"]).arg(&place)).code == 0;
        if !packed
            || ["cc", "make"]
                .iter()
                .any(|name| super::find_program(name, &[]).is_none())
        {
            teal_testkit::skip_test(
                test,
                "needs cc, make and the sources of zstd-sys in cargo's registry",
            );
            return None;
        }
        let mut this = Self {
            place,
            built: (0, 0),
        };
        let outside = world.path("built");
        std::fs::create_dir(&outside).unwrap();
        this.built = this.build(&outside);
        Some(this)
    }

    /// Finishes it in `dir`; the digest of the library.
    #[track_caller]
    fn build(&self, dir: &Path) -> (u64, u128) {
        let script = format!("{UNPACK}\nmake -s out/library.a");
        run_program(
            Command::new("sh")
                .args(["-ec", &script, "sh"])
                .arg(dir)
                .arg(&self.place),
        )
        .expect_success();
        digest(&dir.join("out/library.a"))
    }

    /// Finishes the half-done work in `dir`, and checks that it comes out as anywhere.
    #[track_caller]
    pub(crate) fn finish(&self, dir: &Path) {
        assert_eq!(self.build(dir), self.built, "built in {}", dir.display());
    }

    /// Builds it over and over in a directory of a mount.
    pub(crate) fn begin(&self, m: &Mounted, dir: &str) -> Work {
        let dir = m.path(dir);
        let _ = std::fs::create_dir(&dir);
        let rounds = tempfile::NamedTempFile::new_in(&self.place)
            .unwrap()
            .into_temp_path();
        let script = format!("unpack() {{\n{UNPACK}\n}}\ncd \"$1\"\n{WITHOUT_END}");
        let mut command = Command::new("sh");
        m.world()
            .furnish(&mut command)
            .args(["-c", &script, "sh"])
            .arg(dir)
            .arg(&self.place)
            .arg(&*rounds);
        let child = command
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Work { child, rounds }
    }
}

/// Work that goes on, until dropped.
#[derive(Debug)]
pub(crate) struct Work {
    child: Child,
    rounds: tempfile::TempPath,
}

impl Work {
    /// Returns how often it was finished.
    pub(crate) fn rounds(&self) -> u64 {
        std::fs::read_to_string(&self.rounds)
            .unwrap()
            .trim()
            .parse()
            .unwrap_or(0)
    }
}

impl Drop for Work {
    /// With all it has started: nothing is to be made on a bare mount point.
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
        let is_gone = wait_until(PATIENCE, || {
            rustix::process::test_kill_process_group(group).is_err()
        });
        assert!(
            is_gone || std::thread::panicking(),
            "what builds does not end"
        );
    }
}
