// SPDX-License-Identifier: Apache-2.0

// This file identifies the network namespace of the calling thread, and finds that namespace's files of /proc/net.
//
// It avoids /proc/thread-self where possible. If a thread's directory in /proc was used, the kernel must remove cached entries of this directory when
// the thread ends. If the thread has to wait for a CPU during that work, the process that waits for its end spins in the kernel
// (proc_invalidate_siblings_dcache of fs/proc/inode.c, shrink_dcache_parent of fs/dcache.c). On a busy machine this costs milliseconds for each
// command.

package sockets

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Namespace returns the inode number of the calling thread's network namespace. It is the number in the link /proc/thread-self/ns/net
// (namespaces(7)).
func Namespace() (uint64, error) {
	if number, err := namespaceOfSocket(); err == nil {
		return number, nil
	}
	return namespaceAt("/proc/thread-self/ns/net") // does not need CAP_NET_ADMIN
}

// ProcFile returns the path of a file of /proc/net, in the namespace of the calling thread.
func ProcFile(name string) string {
	if ours, err := namespaceOfSocket(); err == nil {
		if first, err := namespaceAt("/proc/self/ns/net"); err == nil && first == ours {
			return "/proc/self/net/" + name // /proc/self/net belongs to the first thread of the process
		}
	}
	return "/proc/thread-self/net/" + name
}

// namespaceOfSocket returns the network namespace of a new socket (SIOCGSKNS, sock_ioctl of net/socket.c). It requires CAP_NET_ADMIN.
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

// namespaceAt returns the namespace to which a file of /proc refers.
func namespaceAt(path string) (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	return s.Ino, nil
}
