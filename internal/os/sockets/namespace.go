// This file tells the network namespace of the calling thread, and where its files of /proc/net are.
//
// It stays away from /proc/thread-self where it can: a thread whose directory of /proc was looked at removes what the kernel remembers
// of that directory when it ends, and as long as it waits for a CPU there, the process that waits for ours spins in the kernel
// (proc_invalidate_siblings_dcache of fs/proc/inode.c, shrink_dcache_parent of fs/dcache.c): milliseconds for each command on a
// busy machine.

package sockets

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Namespace is the inode number of the namespace, as /proc/thread-self/ns/net has it (namespaces(7)).
func Namespace() (uint64, error) {
	if number, err := namespaceOfSocket(); err == nil {
		return number, nil
	}
	return namespaceAt("/proc/thread-self/ns/net") // without CAP_NET_ADMIN
}

// ProcFile is the path of a file of /proc/net as the namespace of the calling thread has it.
func ProcFile(name string) string {
	if ours, err := namespaceOfSocket(); err == nil {
		if first, err := namespaceAt("/proc/self/ns/net"); err == nil && first == ours {
			return "/proc/self/net/" + name // of the first thread of the process
		}
	}
	return "/proc/thread-self/net/" + name
}

// namespaceOfSocket is the namespace of a new socket (SIOCGSKNS, sock_ioctl of net/socket.c). It takes CAP_NET_ADMIN.
func namespaceOfSocket() (uint64, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	defer unix.Close(socket)
	namespace, err := unix.IoctlRetInt(socket, unix.SIOCGSKNS)
	if err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	defer unix.Close(namespace)
	var s unix.Stat_t
	if err := unix.Fstat(namespace, &s); err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	return s.Ino, nil
}

// namespaceAt is the namespace that a file of /proc stands for.
func namespaceAt(path string) (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	return s.Ino, nil
}
