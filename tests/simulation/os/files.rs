//! The part of [`super`] about files and descriptors.

/// Files, by path and by descriptor.
pub(crate) mod fs {
    use super::super::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd, number};
    use crate::simulation::kernel::files::{MemoryFile, PathEntry, PathKind};
    use crate::simulation::kernel::{File as OpenFile, kernel};
    use crate::simulation::scripts::steps::RULES;
    pub(crate) use rustix::fs::{
        AtFlags, FileType, FlockOperation, Gid, MemfdFlags, Mode, OFlags, SealFlags, Uid,
    };
    use rustix::io::Errno;
    use std::io::{self, Read, Write};
    use std::path::{Path, PathBuf};

    /// What is known about a path.
    pub(crate) struct Metadata {
        there: PathEntry,
    }

    pub(crate) trait MetadataExt {
        fn dev(&self) -> u64;
        fn ino(&self) -> u64;
        fn mode(&self) -> u32;
        fn mtime(&self) -> i64;
        fn mtime_nsec(&self) -> i64;
    }

    pub(crate) trait FileTypeExt {
        fn is_socket(&self) -> bool;
    }

    impl Metadata {
        pub(crate) fn file_type(&self) -> PathKind {
            self.there.kind
        }
    }

    impl MetadataExt for Metadata {
        fn dev(&self) -> u64 {
            1
        }

        fn ino(&self) -> u64 {
            self.there.inode
        }

        fn mode(&self) -> u32 {
            self.there.mode
        }

        fn mtime(&self) -> i64 {
            0
        }

        fn mtime_nsec(&self) -> i64 {
            0
        }
    }

    pub(crate) fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
        let file = |fd: &OwnedFd| kernel(|k| k.descriptor(fd.as_raw_fd())).map(|it| it.file).ok();
        file(one).is_some() && file(one) == file(other)
    }

    impl FileTypeExt for PathKind {
        fn is_socket(&self) -> bool {
            *self == PathKind::Socket
        }
    }

    fn text(path: &(impl AsRef<Path> + ?Sized)) -> &str {
        path.as_ref().to_str().expect("a path in UTF-8")
    }

    pub(crate) fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
        let path = text(&path);
        kernel(|k| {
            if path == RULES {
                k.rules_read = k.rules_text;
                k.rules_text.ok_or(Errno::NOENT)?;
                return Ok(Metadata { there: PathEntry::file() });
            }
            Ok(Metadata { there: k.path(path)? })
        })
    }

    pub(crate) fn absolute(path: PathBuf) -> io::Result<PathBuf> {
        let path = text(&path);
        kernel(|k| Ok(k.absolute(path)?.into()))
    }

    pub(crate) fn is_file(path: &Path) -> bool {
        metadata(path).is_ok_and(|there| there.file_type() == PathKind::File)
    }

    pub(crate) fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
        metadata(path)
    }

    pub(crate) fn read_dir(path: impl AsRef<Path>) -> io::Result<std::vec::IntoIter<()>> {
        assert_eq!(text(&path), "/proc/self/fd");
        let [all, tcp, unix, _] = kernel(|k| k.count_descriptors());
        assert_eq!(tcp + unix, 0, "clients wait while descriptors are listed");
        // And the folder's.
        Ok(vec![(); all + 1].into_iter())
    }

    pub(crate) fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
        let path = text(&path);
        kernel(|k| k.unlink(path).map_err(Into::into))
    }

    pub(crate) fn chownat(
        fd: impl AsFd,
        path: &str,
        _user: Option<Uid>,
        group: Option<Gid>,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        assert_eq!((path, flags), ("", AtFlags::EMPTY_PATH));
        let fd = number(fd);
        kernel(|k| k.set_group(fd, group.expect("a group").as_raw()))
    }

    pub(crate) fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
        match text(&path) {
            "/etc/group" => Ok("root:x:0:\noperators:x:7:\n".to_owned()),
            "/proc/self/status" => {
                kernel(|k| k.process_reads += 1);
                Ok("VmSize:\t 2000 kB\nVmRSS:\t 1000 kB\n".to_owned())
            }
            _ => Err(Errno::NOENT.into()),
        }
    }

    pub(crate) fn read_regular_file(path: &str, _bytes_max: usize) -> io::Result<Vec<u8>> {
        assert_eq!(path, RULES);
        metadata(path)?;
        kernel(|k| {
            k.rules_reads += 1;
            k.rules_read = k.rules_text;
            let text = k.rules_text.ok_or(Errno::NOENT)?;
            Ok(text.as_bytes().to_vec())
        })
    }

    pub(crate) fn write(_path: &str, _text: &str) -> io::Result<()> {
        Err(Errno::ACCESS.into())
    }

    pub(crate) fn open(
        path: impl AsRef<Path>,
        flags: OFlags,
        _mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        if flags.contains(OFlags::PATH) {
            let path = text(&path);
            let file =
                kernel(|k| k.path(path).and_then(|there| k.open(OpenFile::Path(there.inode))));
            return Ok(OwnedFd::new(file?));
        }
        match text(&path) {
            "/dev/null" => Ok(OwnedFd::new(kernel(|k| k.open(OpenFile::Null))?)),
            "/proc/self/fd/2" => Err(Errno::ACCESS),
            _ => Err(Errno::NXIO),
        }
    }

    /// Directories can't be opened here.
    pub(crate) fn flock(_fd: impl AsFd, _how: FlockOperation) -> Result<(), Errno> {
        Ok(())
    }

    /// The fields that the daemon uses.
    pub(crate) struct Stat {
        pub(crate) st_mode: u32,
        pub(crate) st_dev: u64,
        pub(crate) st_ino: u64,
    }

    pub(crate) fn fstat(fd: impl AsFd) -> Result<Stat, Errno> {
        let fd = number(fd);
        let kind = kernel(|k| match k.file(fd)? {
            OpenFile::Log => Ok(FileType::Fifo),
            OpenFile::Socket(_) => Ok(FileType::Socket),
            _ => Ok(FileType::CharacterDevice),
        });
        kind.map(|kind| Stat { st_mode: kind.as_raw_mode(), st_dev: 1, st_ino: fd as u64 })
    }

    pub(crate) fn memfd_create(_name: &str, _flags: MemfdFlags) -> Result<OwnedFd, Errno> {
        let memory = MemoryFile { can_grow: true, ..MemoryFile::default() };
        Ok(OwnedFd::new(kernel(|k| k.open(OpenFile::Memory(memory)))?))
    }

    pub(crate) fn fcntl_add_seals(fd: impl AsFd, seals: SealFlags) -> Result<(), Errno> {
        let fd = number(fd);
        kernel(|k| k.memory(fd).map(|memory| memory.can_grow &= !seals.contains(SealFlags::GROW)))
    }

    pub(crate) fn ftruncate(fd: impl AsFd, len: u64) -> Result<(), Errno> {
        let fd = number(fd);
        kernel(|k| k.memory(fd).map(|memory| memory.bytes.resize(len as usize, 0)))
    }

    /// A file in memory.
    pub(crate) struct File(OwnedFd);

    impl From<OwnedFd> for File {
        fn from(fd: OwnedFd) -> Self {
            File(fd)
        }
    }

    impl AsFd for File {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl AsRawFd for File {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }

    impl Write for File {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fd = self.as_raw_fd();
            Ok(kernel(|k| k.write(fd, bytes))?)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for File {
        fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
            Err(Errno::INVAL.into())
        }
    }
}

/// Descriptors of any kind.
pub(crate) mod io {
    use super::super::fd::{AsFd, OwnedFd, RawFd, number};
    use crate::simulation::kernel::kernel;
    pub(crate) use rustix::io::{DupFlags, Errno, FdFlags, ReadWriteFlags, retry_on_intr};
    use std::io::IoSlice;

    pub(crate) fn fcntl_dupfd_cloexec(fd: impl AsFd, low: RawFd) -> Result<OwnedFd, Errno> {
        let fd = number(fd);
        Ok(OwnedFd::new(kernel(|k| k.duplicate_from(fd, low))?))
    }

    pub(crate) fn fcntl_setfd(fd: impl AsFd, flags: FdFlags) -> Result<(), Errno> {
        let fd = number(fd);
        kernel(|k| k.set_closes_on_exec(fd, flags.contains(FdFlags::CLOEXEC)))
    }

    pub(crate) fn dup3(fd: impl AsFd, to: &mut OwnedFd, _flags: DupFlags) -> Result<(), Errno> {
        let (fd, to) = (number(fd), number(to));
        kernel(|k| k.duplicate_to(fd, to, true))
    }

    pub(crate) fn ioctl_fionbio(_fd: impl AsFd, _on: bool) -> Result<(), Errno> {
        Ok(())
    }

    pub(crate) fn pread(fd: impl AsFd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
        let fd = number(fd);
        kernel(|k| {
            let bytes = k.memory(fd)?.bytes.get(at as usize..).unwrap_or_default();
            let len = bytes.len().min(buffer.len());
            buffer[..len].copy_from_slice(&bytes[..len]);
            Ok(len)
        })
    }

    pub(crate) fn pwrite(fd: impl AsFd, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        let fd = number(fd);
        kernel(|k| k.write_at(fd, bytes, at as usize))
    }

    pub(crate) fn write(fd: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
        let fd = number(fd);
        kernel(|k| k.write(fd, bytes))
    }

    pub(crate) fn pwritev2(
        fd: impl AsFd,
        slices: &[IoSlice<'_>],
        _at: u64,
        _flags: ReadWriteFlags,
    ) -> Result<usize, Errno> {
        write(fd, &slices[0])
    }
}

/// Descriptors 0 to 2.
pub(crate) mod stdio {
    use super::super::fd::{AsFd, BorrowedFd, number};
    use crate::simulation::kernel::kernel;
    use rustix::io::Errno;
    use std::marker::PhantomData;

    pub(crate) fn stdin() -> BorrowedFd<'static> {
        BorrowedFd(0, PhantomData)
    }

    pub(crate) fn stdout() -> BorrowedFd<'static> {
        BorrowedFd(1, PhantomData)
    }

    pub(crate) fn stderr() -> BorrowedFd<'static> {
        BorrowedFd(2, PhantomData)
    }

    macro_rules! duplicates {
        ($($function:ident $to:literal;)*) => {$(
            pub(crate) fn $function(fd: impl AsFd) -> Result<(), Errno> {
                // An owned descriptor is closed only afterwards.
                let number = number(&fd);
                kernel(|k| k.duplicate_to(number, $to, false))
            }
        )*};
    }

    duplicates! {
        dup2_stdin 0;
        dup2_stdout 1;
        dup2_stderr 2;
    }
}
