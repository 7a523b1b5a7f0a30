// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// Sent contains the numbers of the frames that were sent.
type Sent struct {
	Frames  uint64
	By      map[string]uint64 // of each class
	First   time.Time         // the first frame; zero when there was none
	Refused uint64            // refused by the device because its queue was full
	Late    time.Duration     // the longest delay of a frame
}

// tick is how long the sender waits when no frame is due. So frames leave in bursts, like from real queues.
const tick = time.Millisecond

// Send sends the frames that are due since began, until the time is over or ctx ends, which is no error. Frames that could not be sent in time are
// sent late, so all frames of the model are sent. They leave through the queue of the device, like the frames of a program on its host.
func Send(ctx context.Context, d *lab.Device, p *Player, began time.Time, lasts time.Duration) (s Sent, err error) {
	s.By = map[string]uint64{}
	fd, err := openSocket(d)
	if err != nil {
		return s, fmt.Errorf("send at device %s: %w", d.Name, err)
	}
	defer unix.Close(fd)
	for ctx.Err() == nil {
		now := time.Since(began)
		due, more := p.Due()
		if !more || due >= lasts {
			return s, nil
		}
		if due > now {
			select {
			case <-ctx.Done():
			case <-time.After(max(tick, due-now)):
			}
			continue
		}
		s.Late = max(s.Late, now-due)
		frame, class := p.Next(d.Peer.MAC, d.MAC)
		switch err := s.send(fd, frame); {
		case errors.Is(err, unix.ENOBUFS):
			s.Refused++
			continue
		case err != nil:
			return s, fmt.Errorf("send at device %s: %w", d.Name, err)
		}
		if s.Frames++; s.Frames == 1 {
			s.First = time.Now()
		}
		if class != nil {
			s.By[class.Name]++
		}
	}
	return s, nil
}

// send sends a frame, and repeats the call if a signal of the Go runtime interrupts it.
func (s *Sent) send(fd int, frame []byte) error {
	for {
		if _, err := unix.Write(fd, frame); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openSocket opens a packet socket that only sends (packet(7): protocol 0 receives nothing).
func openSocket(d *lab.Device) (fd int, err error) {
	err = d.Host.Do(func() error {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: d.Index}); err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
		return err
	})
	return fd, err
}
