//! The program that commands run to get out: it says `GOT IN` where it could, and why not where it could not.

#![allow(unsafe_code, reason = "there is no other way to make such calls")]

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

pub(crate) fn attack(what: &str, rest: &[&str]) -> ExitCode {
    let pid = || rest[0].parse::<i32>().unwrap();
    let got_in: io::Result<&str> = match what {
        "tcp" => {
            TcpStream::connect_timeout(&rest[0].parse().unwrap(), Duration::from_secs(2)).map(|_| "GOT IN")
        }
        "udp" => {
            let sent = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
                socket.connect(rest[0])?;
                // On a loopback of its own, the first is answered by an error of the second.
                socket.send(b"x")?;
                std::thread::sleep(Duration::from_millis(20));
                socket.send(b"x")
            });
            sent.map(|_| "GOT IN")
        }
        "abstract" => SocketAddr::from_abstract_name(rest[0])
            .and_then(|address| UnixStream::connect_addr(&address))
            .map(|_| "GOT IN"),
        "socket" => UnixStream::connect(rest[0]).map(|_| "GOT IN"),
        "listen" => listen(rest[0]).map(|()| "fine"),
        "serve" => serve(rest[0]).map(|()| "fine"),
        "loopback" => loopback().map(|()| "fine"),
        "pair" => UnixStream::pair().map(|_| "fine"),
        "terminal" => terminal(),
        "own-child" => own_child(),
        // SAFETY: these take plain values.
        "ptrace" => result(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid(), 0, 0) }).map(|_| "GOT IN"),
        "memory" => memory(pid()),
        "limits" => limits(pid()),
        "exchange" => exchange(rest[0], rest[1]),
        "root" => match unsafe { (libc::geteuid(), libc::getuid()) } {
            (effective, real) if effective != real => return ExitCode::SUCCESS,
            _ => return ExitCode::FAILURE,
        },
        "calls" => {
            calls();
            Ok("all calls were tried")
        }
        other => panic!("no such attack: {other}"),
    };
    match got_in {
        Ok(word) => println!("{word}"),
        Err(error) => println!("refused: {error}"),
    }
    ExitCode::SUCCESS
}

fn result(returned: i64) -> io::Result<i64> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

fn listen(name: &str) -> io::Result<()> {
    let listener = UnixListener::bind(name)?;
    listener.incoming().try_for_each(|stream| stream.map(drop))
}

fn serve(file: &str) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    std::fs::write("port.tmp", listener.local_addr()?.port().to_string())?;
    std::fs::rename("port.tmp", file)?;
    for stream in listener.incoming() {
        stream?.write_all(b"hello")?;
    }
    Ok(())
}

fn loopback() -> io::Result<()> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = match TcpListener::bind(address) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => continue,
            listener => listener?,
        };
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        listener.accept()?.0.write_all(b"x")?;
        client.read_exact(&mut [0])?;
    }
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.send_to(b"x", other.local_addr()?)?;
    other.recv(&mut [0]).map(|_| ())
}

/// A terminal of its own, which nothing may type into.
fn terminal() -> io::Result<&'static str> {
    // SAFETY: plain values, and descriptors that these calls made.
    unsafe {
        let leader = result(libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY).into())?;
        let leader = i32::try_from(leader).unwrap();
        result(libc::grantpt(leader).into())?;
        result(libc::unlockpt(leader).into())?;
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(leader, name.as_mut_ptr(), name.len()), 0);
        libc::setsid();
        let side = i32::try_from(result(libc::open(name.as_ptr(), libc::O_RDWR).into())?).unwrap();
        let byte = b'x';
        for word in [libc::TIOCSTI, libc::TIOCSTI | 0xffff_ffff_0000_0000] {
            let typed = libc::syscall(libc::SYS_ioctl, side, word, &raw const byte);
            match result(typed) {
                Ok(_) => return Ok("GOT IN"),
                Err(error) if error.raw_os_error() != Some(libc::EPERM) => return Err(error),
                Err(_) => {}
            }
        }
    }
    Ok("fine")
}

fn own_child() -> io::Result<&'static str> {
    let mut child = std::process::Command::new("sleep").arg("5").spawn()?;
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: plain values.
    let seized = result(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) });
    child.kill()?;
    child.wait()?;
    seized.map(|_| "fine")
}

fn memory(pid: i32) -> io::Result<&'static str> {
    let opened = std::fs::File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
    if opened.is_ok() || std::fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| !maps.is_empty()) {
        return Ok("GOT IN");
    }
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: 0x1000 as *mut _, iov_len: 1 };
    // SAFETY: the structs live through the call; the other's address is not this process's.
    let read =
        result(unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) } as i64);
    match read {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ok("GOT IN"),
        other => other.map(|_| "GOT IN"),
    }
}

fn limits(pid: i32) -> io::Result<&'static str> {
    // SAFETY: without new limits nothing is changed; the struct lives through the call.
    let mut old = unsafe { std::mem::zeroed::<libc::rlimit64>() };
    let set = unsafe { libc::prlimit64(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut old) };
    result(set.into()).map(|_| "GOT IN")
}

fn exchange(one: &str, other: &str) -> io::Result<&'static str> {
    let (one, other) = (CString::new(one)?, CString::new(other)?);
    const EXCHANGE: libc::c_uint = 2;
    // SAFETY: the texts live through the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            EXCHANGE,
        )
    };
    result(done).map(|_| "exchanged")
}

/// Calls that must be refused before the kernel even looks at their arguments.
fn calls() {
    let expect = |name: &str, wanted: i32, returned: i64| {
        let error = io::Error::last_os_error();
        if returned >= 0 || error.raw_os_error() != Some(wanted) {
            println!("GOT IN: {name} gave {returned}, {error}");
        }
    };
    macro_rules! refused {
        ($($name:ident),+ $(,)?) => {
            // SAFETY: with arguments that mean nothing the calls could do nothing either.
            $(expect(stringify!($name), libc::EPERM, unsafe { libc::syscall(libc::$name, -1_i64, 0, 0, 0, 0, 0) });)+
        };
    }
    refused!(
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_chroot,
        SYS_open_tree,
        SYS_move_mount,
        SYS_fsopen,
        SYS_fsconfig,
        SYS_fsmount,
        SYS_fspick,
        SYS_mount_setattr,
        SYS_setns,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_pidfd_getfd,
        SYS_kcmp,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_kexec_load,
        SYS_kexec_file_load,
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_io_uring_setup,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_userfaultfd,
        SYS_reboot,
        SYS_swapon,
        SYS_swapoff,
        SYS_open_by_handle_at,
        SYS_clock_settime,
        SYS_sethostname,
        SYS_unshare,
        SYS_socket,
    );
    let new_user = i64::from(libc::CLONE_NEWUSER);
    // SAFETY: all of them are refused, else this process is the only one concerned.
    unsafe {
        expect(
            "clone",
            libc::EPERM,
            libc::syscall(libc::SYS_clone, new_user | i64::from(libc::SIGCHLD), 0, 0, 0, 0),
        );
        expect("clone3", libc::ENOSYS, libc::syscall(libc::SYS_clone3, 0, 0));
        for (family, protocol) in [
            (libc::AF_PACKET, 0),
            (libc::AF_VSOCK, 0),
            (libc::AF_ALG, 0),
            (libc::AF_BLUETOOTH, 0),
            (libc::AF_XDP, 0),
            (libc::AF_TIPC, 0),
            (libc::AF_NETLINK, libc::NETLINK_NETFILTER),
            (libc::AF_NETLINK, libc::NETLINK_KOBJECT_UEVENT),
        ] {
            let made = libc::socket(family, libc::SOCK_RAW, protocol);
            expect(&format!("socket of family {family}"), libc::EPERM, made.into());
        }
        // The upper half of the argument does not matter to the kernel.
        let family = i64::from(libc::AF_VSOCK) | 1 << 32;
        expect("a socket with a long family", libc::EPERM, libc::syscall(libc::SYS_socket, family, 1, 0));
        #[cfg(target_arch = "x86_64")]
        {
            expect("x32", libc::EPERM, libc::syscall(0x4000_0000 | libc::SYS_getpid));
            let old: i64;
            // `getpid` for 32 bits.
            std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => old, options(nostack));
            if old >= 0 {
                println!("GOT IN: a call for 32 bits gave {old}");
            }
        }
        let stdin = io::stdin().as_raw_fd();
        expect("TIOCSTI", libc::EPERM, libc::ioctl(stdin, libc::TIOCSTI, c"x".as_ptr()).into());
    }
}
