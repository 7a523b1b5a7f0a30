// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// FrameBytes is the largest number of bytes of a frame in a sample.
const FrameBytes = 256

// Sample is a packet: either a sampled one, with at most FrameBytes of its frame, or one from a file.
type Sample = datapath.Sample

// DeviceReader reads samples of devices.
type DeviceReader struct {
	oneIn   uint32
	sockets []*socket
	polled  []unix.PollFd
	turn    int // the index of the socket that is read next
	frame   []byte
}

// OpenDevices starts to sample one in oneIn of the packets that arrive on devices of this network namespace. It needs CAP_NET_RAW and CAP_NET_ADMIN.
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

// OneIn returns n if one in n packets is sampled.
func (r *DeviceReader) OneIn() uint32 { return r.oneIn }

// SetShare changes the sampling rate to one in oneIn packets. Samples that are waiting to be read are kept.
func (r *DeviceReader) SetShare(oneIn uint32) error {
	r.oneIn = max(1, oneIn)
	for _, s := range r.sockets {
		if err := s.filter(uint32(math.MaxUint32 / uint64(r.oneIn))); err != nil {
			return fmt.Errorf("sampling device %s: %w", s.device.Name, err)
		}
	}
	return nil
}

// lookAgain is how often Read checks whether its context has ended.
const lookAgain = 50 * time.Millisecond

// Read waits for a sample. The sample's frame is valid until the next Read. When ctx has ended, Read returns the error of ctx, even if samples are
// waiting. The devices take turns.
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

// Lost returns the number of samples that were lost because they arrived faster than they were read.
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
