// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// steppedCalls returns a seccomp filter. The filter makes the kernel notify a listener before a command creates or updates a BPF link to a device
// (seccomp(2), bpf(2)).
func steppedCalls() []unix.SockFilter {
	const number, command = 0, 16 // offsets in struct seccomp_data, of the lower half of the first argument on little-endian machines
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equal := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	return []unix.SockFilter{
		load(number),
		equal(unix.SYS_BPF, 0, 3),
		load(command),
		equal(unix.BPF_LINK_CREATE, 2, 0),
		equal(unix.BPF_LINK_UPDATE, 1, 0),
		answer(unix.SECCOMP_RET_ALLOW),
		answer(unix.SECCOMP_RET_USER_NOTIF),
	}
}

// askFirst installs the filter of steppedCalls for this thread and for processes that it starts from now on. It returns the listener. The kernel
// announces each such call there and waits for an answer. The filter cannot be removed.
func askFirst() (listener int, err error) {
	filter := steppedCalls()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// answerCalls lets each announced call continue, until stop is set. It counts the calls that are made while due returns true, and returns this count.
// At the call whose number is step, it kills the process group of the caller instead.
func answerCalls(listener, step int, due func() bool, stop *atomic.Bool) (calls int, err error) {
	for !stop.Load() {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 20); n <= 0 || poll[0].Revents&unix.POLLIN == 0 {
			if err != nil && !errors.Is(err, unix.EINTR) {
				return calls, fmt.Errorf("poll: %w", err)
			}
			continue
		}
		var asked [80]byte // struct seccomp_notif: id, pid, flags, data
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&asked))); errno != 0 {
			continue // it has died meanwhile
		}
		if due() {
			if calls++; calls == step {
				group, err := unix.Getpgid(int(binary.NativeEndian.Uint32(asked[8:])))
				if err == nil {
					err = unix.Kill(-group, unix.SIGKILL)
				}
				if err != nil {
					return calls, fmt.Errorf("killing: %w", err)
				}
				continue
			}
		}
		var goOn [24]byte // struct seccomp_notif_resp: id, val, error, flags
		copy(goOn[:8], asked[:8])
		binary.NativeEndian.PutUint32(goOn[20:], unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE)
		unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&goOn)))
	}
	return calls, nil
}

// killAtLink runs floodwall, and kills it before it changes a BPF link. The parameter step is the number of that link, counted from the moment when
// floodwall has recorded a new generation. killAtLink returns true if floodwall ended before.
func (h *trialHost) killAtLink(step int, args ...string) (done bool, err error) {
	known := h.written()
	due := func() bool { return h.written() > known }
	err = h.host.do(func() error {
		cmd := h.command(args...)
		var output strings.Builder
		cmd.Stdout, cmd.Stderr = &output, &output
		listener, err := askFirst()
		if err != nil {
			return err
		}
		defer unix.Close(listener)
		var stop atomic.Bool
		answered := make(chan error)
		go func() {
			_, err := answerCalls(listener, step, due, &stop)
			answered <- err
		}()
		err = cmd.Run()
		stop.Store(true)
		if err := <-answered; err != nil {
			return err
		}
		if done = err == nil; !done && cmd.ProcessState.ExitCode() != killed {
			return fmt.Errorf("floodwall %s: %w\n%s", args[0], err, &output)
		}
		return nil
	})
	return done, err
}

// written returns the highest generation number that is recorded in the kernel.
func (h *trialHost) written() (highest int) {
	list, _ := filepath.Glob(filepath.Join(h.bpffs, "generation-*", "manifest"))
	for _, path := range list {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(path)), "generation-%d", &n); err == nil {
			highest = max(highest, n)
		}
	}
	return highest
}

// TestKilledOnceWritten kills `apply --confirm` at each step after it has written the policy on trial to the kernel. These include steps before a
// device has its program, and steps after netfilter tools. After the trial's time, the old policy must decide. A rollback must then go to the policy
// that was in force before the old one, and never to the policy on trial. If there is no such policy, rollback must say so.
func TestKilledOnceWritten(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	plain := func(name, from, to string) layout {
		return layout{name: name, old: []string{"--target", from}, new: []string{"--target", to}}
	}
	dir := scripts(t, killer)
	onHosts(t, []layout{
		plain("nftables to xdp", "nftables", "xdp"), plain("xdp to nftables", "xdp", "nftables"),
		plain("nftables twice", "nftables", "nftables"), plain("xdp twice", "xdp", "xdp"),
	}, 2, func(h *trialHost) {
		links := 1
		for !h.killOnceWritten(func(args ...string) (bool, error) { return h.killAtLink(links, args...) }) {
			links++
		}
		for tools := 1; ; tools += testutil.Scaled(6, 1) {
			if h.killOnceWritten(func(args ...string) (bool, error) { return h.killAt(dir, tools, args...) }) {
				t.Logf("%s: killed before %d changes of links, and after the first %d tools", h.name, links-1, tools-1)
				return
			}
		}
	})
}

// killOnceWritten tests one kill. It returns true if the apply ended before the kill. On the second host of a layout, no policy was in force before
// the old one.
func (h *trialHost) killOnceWritten(kill func(args ...string) (done bool, err error)) (over bool) {
	alone := h.number == 1
	if alone {
		h.enter("starting anew")
		h.must("unload")
	}
	h.apply(old)
	h.enter("apply --confirm killed")
	over, err := kill(h.applying(next, "--confirm", shortTrial.String())...)
	if err != nil {
		h.wrong("%v", err)
	}
	if who := h.settled(time.Now().Add(shortTrial), func(who string) bool { return who == old }); who != old {
		h.wrong("after the deadline %s decides", who)
	}
	for range 2 { // the first command may find that the kernel has returned to the old policy by itself
		out, err := h.run("rollback")
		if err != nil && !(alone && strings.Contains(out, "there is no previous policy to return to")) {
			h.wrong("rollback: %v\n%s", err, out)
		}
		h.want("after a rollback", old)
	}
	return over || err != nil
}
