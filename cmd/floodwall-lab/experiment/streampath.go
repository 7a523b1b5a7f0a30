// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// streamPath is the path of connections from a host to an address of another host. It has the CPU of each side, and the devices whose receive threads
// run on this CPU.
type streamPath struct {
	from, to *lab.Host
	at       netip.AddrPort
	cpus     [2]int
	devices  [2][]*lab.Device
}

// open opens a connection. Both ends are established when it returns, also with a proxy between them.
func (p *streamPath) open(ctx context.Context) (near, far *streamEnd, err error) {
	ctx, cancel := context.WithTimeout(ctx, streamPatience)
	defer cancel()
	l, err := p.listen(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	dialed, err := p.from.Dial(ctx, "tcp", p.at)
	if err != nil {
		return nil, nil, err
	}
	defer dialed.Close()
	if err := l.SetDeadline(time.Now().Add(streamPatience)); err != nil {
		return nil, nil, err
	}
	accepted, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	defer accepted.Close()
	if near, err = newStreamEnd(dialed, p.cpus[0]); err != nil {
		return nil, nil, err
	}
	if far, err = newStreamEnd(accepted, p.cpus[1]); err != nil {
		return nil, nil, errors.Join(err, near.close())
	}
	return near, far, nil
}

// listen opens a socket like that of most servers: without MPTCP, which is Go's default.
func (p *streamPath) listen(ctx context.Context) (l *net.TCPListener, err error) {
	err = p.to.Do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		opened, err := config.Listen(ctx, "tcp", p.at.String())
		if err == nil {
			l = opened.(*net.TCPListener)
		}
		return err
	})
	return l, err
}

// transfer opens a connection and sends bytes over it, from the far end if back is true. It returns two rates in bytes per second: one by the elapsed
// time, the other by the CPU time of the busier CPU.
func (p *streamPath) transfer(ctx context.Context, back bool, bytes int64) (rate, able float64, err error) {
	near, far, err := p.open(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, near.close(), far.close()) }()
	before, err := p.received()
	if err != nil {
		return 0, 0, err
	}
	sends, takes := streamCall(unix.Write), streamCall(unix.Read)
	if back {
		sends, takes = takes, sends
	}
	began := time.Now()
	started, other := near.start(sends, bytes), far.start(takes, bytes)
	here, there := <-started, <-other
	took := time.Since(began)
	after, looked := p.received()
	busiest := max(here.ran+after[0]-before[0], there.ran+after[1]-before[1])
	perSecond := func(d time.Duration) float64 { return float64(bytes) / d.Seconds() }
	return perSecond(took), perSecond(busiest), errors.Join(here.err, there.err, looked)
}

// read transfers bytes, and returns both rates in megabytes per second.
func (p *streamPath) read(ctx context.Context, back bool, bytes int64) (rig.Reading, error) {
	rate, able, err := p.transfer(ctx, back, bytes)
	return rig.Reading{"MB/s": rate / 1e6, "able-MB/s": able / 1e6}, err
}

// received returns the run time of the receive threads of both sides.
func (p *streamPath) received() (ran [2]time.Duration, err error) {
	for i, devices := range p.devices {
		for _, d := range devices {
			more, err := d.Ran()
			if err != nil {
				return ran, err
			}
			ran[i] += more
		}
	}
	return ran, nil
}
