// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller runs clients on one thread, which never waits for a single one of them.
type poller struct {
	rate    float64 // messages or connections per second
	lasts   time.Duration
	epoll   int
	start   time.Time
	started uint64        // messages or connections
	last    time.Duration // time when the last one was started
	looked  time.Duration // time of the last poll
	stalled time.Duration // the longest time between two polls
	events  [64]unix.EpollEvent
}

func newPoller(rate float64, lasts time.Duration) (p *poller, err error) {
	p = &poller{rate: rate, lasts: lasts}
	p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return p, err
}

// turn begins a round of the clients' loop. It returns the time since the start.
func (p *poller) turn() time.Duration {
	now := time.Since(p.start)
	p.stalled, p.looked = max(p.stalled, now-p.looked), now
	return now
}

// due returns the time at which the next message is due. The second result is false if no more are due.
func (p *poller) due() (time.Duration, bool) {
	at := time.Duration(float64(p.started) / p.rate * float64(time.Second))
	return at, at < p.lasts
}

// burst is the maximum number of late messages that are sent before the next poll.
const burst = 16

// startDue calls begin for the due messages. The result until is the time of the next poll; more is false if there are no more messages.
func (p *poller) startDue(now time.Duration, begin func(due time.Duration) error) (until time.Duration, more bool, err error) {
	due, more := p.due()
	for range burst {
		if !more || due > now {
			break
		}
		if err := begin(due); err != nil {
			return 0, false, err
		}
		due, more = p.due()
	}
	until = now + time.Millisecond
	if more {
		until = min(until, due)
	}
	return until, more, nil
}

// look waits for events until a time, and handles them.
func (p *poller) look(until time.Duration, handle func(unix.EpollEvent)) error {
	t := unix.NsecToTimespec(int64(max(0, until-p.looked)))
	// The package x/sys has no wrapper for epoll_pwait2 (Linux 5.11), the only such call with a timeout below a millisecond. With a raw call, Go's
	// runtime does not know that the thread waits. Otherwise the runtime would check the thread every 20 us from another thread on the clients' CPU
	// (Go's runtime/proc.go, sysmon).
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(unsafe.Pointer(&t)), 0, 0)
	switch errno {
	case unix.EINTR:
		return nil
	case 0:
	default:
		return fmt.Errorf("epoll_pwait2: %w", errno)
	}
	for _, e := range p.events[:n] {
		handle(e)
	}
	return nil
}
