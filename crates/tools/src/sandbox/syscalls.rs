//! The filter of system calls that every command in a sandbox has.
//!
//! It refuses what no build or test needs and what could lead around the rest: other namespaces and mounts, handles of
//! other processes, the kernel's own switches, and sockets of odd families. A refused call fails with `EPERM`, so a
//! program can do without; those that say what they cannot do with `ENOSYS` let libraries take the older way. Programs
//! for other instruction sets (32 bits, x32) are refused every call, since their numbers mean other calls.
//!
//! `ptrace` is left to Landlock, which lets a command trace what it started itself and nothing else: debuggers and leak
//! checkers need that.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

/// Which sockets may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// Those that a network of its own holds, and those of files.
    OfOwnNetwork,
    /// None but pairs, and the one that lists interfaces: neither the network nor sockets in the file system are
    /// held by anything else.
    None,
}

/// Calls that are refused whatever their arguments are.
const REFUSED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_vhangup,
    libc::SYS_syslog,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// What makes a namespace, of `unshare` and `clone`. (`CLONE_NEWTIME` is, for `clone`, part of the signal's number.)
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWCGROUP,
];

/// What types into a terminal, or has the console type: `TIOCSTI` and `TIOCLINUX`. (Their type differs between libraries.)
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// Numbers from here on are those of x32.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Makes the filter.
pub(super) fn filter(sockets: Sockets) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for call in [libc::SYS_unshare, libc::SYS_clone] {
        let flags = NAMESPACES.into_iter().map(|flag| has_flag(flag.cast_unsigned().into()));
        rules.insert(call, flags.collect::<Result<_, _>>()?);
    }
    let time = has_flag(u64::from(libc::CLONE_NEWTIME.cast_unsigned()))?;
    rules.entry(libc::SYS_unshare).or_default().push(time);
    let typing = TYPING.into_iter().map(|word| rule(vec![is(1, SeccompCmpOp::Eq, word)?]));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    // Limits of other processes: whoever has the same user may set them.
    rules.insert(libc::SYS_prlimit64, vec![rule(vec![is(0, SeccompCmpOp::Ne, 0)?])?]);
    rules.insert(libc::SYS_socket, refused_sockets(sockets)?);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into()?;
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()?;
    Ok([before(&program), program].concat())
}

fn refused_sockets(sockets: Sockets) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let not = |family: i32| is(0, SeccompCmpOp::Ne, family.cast_unsigned().into());
    let netlink = libc::AF_NETLINK.cast_unsigned().into();
    let mut other = vec![not(libc::AF_NETLINK)?];
    if sockets == Sockets::OfOwnNetwork {
        other.extend([not(libc::AF_UNIX)?, not(libc::AF_INET)?, not(libc::AF_INET6)?]);
    }
    let route = libc::NETLINK_ROUTE.cast_unsigned().into();
    let other_netlink = vec![is(0, SeccompCmpOp::Eq, netlink)?, is(2, SeccompCmpOp::Ne, route)?];
    Ok(vec![rule(other)?, rule(other_netlink)?])
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(conditions)?)
}

/// The kernel looks at the lower half of such an argument only, and so does this.
fn is(argument: u8, compared: SeccompCmpOp, to: u64) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compared, to)?)
}

fn has_flag(flag: u64) -> Result<SeccompRule, seccompiler::Error> {
    rule(vec![is(0, SeccompCmpOp::MaskedEq(flag), flag)?])
}

/// What stands before the compiled filter, which kills what is for another instruction set, knows nothing of x32, and
/// has one answer for all that it refuses. Its own first instruction that compares holds the name of the set.
fn before(compiled: &[sock_filter]) -> BpfProgram {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    #[cfg(target_arch = "x86_64")]
    const FROM: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let refuse = |errno: i32| step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned());
    let arch = compiled.iter().find(|step| step.code == EQUAL).map_or(0, |step| step.k);
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    vec![
        step(LOAD, 0, 0, 4),
        step(EQUAL, 1, 0, arch),
        refuse(libc::EPERM),
        step(LOAD, 0, 0, 0),
        #[cfg(target_arch = "x86_64")]
        step(FROM, 0, 1, X32),
        #[cfg(target_arch = "x86_64")]
        refuse(libc::EPERM),
        // Its flags lie in memory, where no filter can look.
        step(EQUAL, 0, 1, clone3),
        refuse(libc::ENOSYS),
    ]
}
