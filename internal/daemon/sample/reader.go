package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// FrameBytes is how much of a frame is handed out at most.
const FrameBytes = 256

// Sample is a packet. Its frame is valid until the next Read.
type Sample struct {
	Device string
	Length int    // of the whole frame, in bytes
	Frame  []byte // the first of them, at most FrameBytes; the kernel has taken VLAN tags off

	Stands float64 // so many packets it stands for; 0 where only its reader knows

	Time    time.Time // when it came; zero when nobody has noted it
	Verdict string    // what XDP did with it; "" where that is not known: XDP has passed it
	Reason  string    // the name of the rule or check that decided; "" where that is not known
}

// DeviceReader reads the samples of some devices.
type DeviceReader struct {
	oneIn   uint32
	sockets []*socket
	polled  []unix.PollFd
	turn    int // the socket to look at next
	frame   []byte
}

// OpenDevices begins to hand out one in so many of the packets that come to devices of this network namespace. It takes CAP_NET_RAW and
// CAP_NET_ADMIN.
func OpenDevices(devices []string, oneIn uint32) (*DeviceReader, error) {
	r := &DeviceReader{frame: make([]byte, FrameBytes)}
	for _, name := range devices {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("device %s: %w", name, err), r.Close())
		}
		s, err := openSocket(dev)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sampling device %s: %w", name, err), r.Close())
		}
		r.sockets = append(r.sockets, s)
		r.polled = append(r.polled, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
	if err := r.SetShare(oneIn); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	for _, s := range r.sockets {
		if err := s.begin(); err != nil {
			return nil, errors.Join(fmt.Errorf("sampling device %s: %w", s.device.Name, err), r.Close())
		}
	}
	return r, nil
}

// OneIn is the number of packets of which one is handed out.
func (r *DeviceReader) OneIn() uint32 { return r.oneIn }

// SetShare has one in so many packets handed out from now on. What waits already stays.
func (r *DeviceReader) SetShare(oneIn uint32) error {
	r.oneIn = max(1, oneIn)
	for _, s := range r.sockets {
		if err := s.filter(uint32(math.MaxUint32 / uint64(r.oneIn))); err != nil {
			return fmt.Errorf("sampling device %s: %w", s.device.Name, err)
		}
	}
	return nil
}

// lookAgain is how often Read looks whether its context has ended.
const lookAgain = 50 * time.Millisecond

// Read waits for a sample. It returns the error of ctx when that has ended, also while samples come faster than they are read. The
// devices take turns.
func (r *DeviceReader) Read(ctx context.Context) (Sample, error) {
	for {
		if ctx.Err() != nil {
			return Sample{}, ctx.Err()
		}
		for range r.polled {
			i := r.turn
			r.turn = (r.turn + 1) % len(r.polled)
			if r.polled[i].Revents == 0 {
				continue
			}
			if sample, ok, err := r.sockets[i].read(r.frame); ok || err != nil {
				return sample, err
			}
			r.polled[i].Revents = 0
		}
		if _, err := unix.Poll(r.polled, int(lookAgain.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
			return Sample{}, fmt.Errorf("samples: %w", err)
		}
	}
}

// Lost counts the samples that were drawn and not handed out, as they came faster than they were read.
func (r *DeviceReader) Lost() (sum uint64, err error) {
	for _, s := range r.sockets {
		n, err := s.lost()
		if err != nil {
			return 0, fmt.Errorf("lost samples: %w", err)
		}
		sum += n
	}
	return sum, nil
}

// Close ends the sampling.
func (r *DeviceReader) Close() (err error) {
	for _, s := range r.sockets {
		err = errors.Join(err, unix.Close(s.fd))
	}
	return err
}
