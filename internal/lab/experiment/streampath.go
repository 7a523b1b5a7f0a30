package experiment

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// streamPath is where connections stand: from a host to an address of another. Of each side it knows the CPU, and the devices whose
// receive threads work there.
type streamPath struct {
	from, to *lab.Host
	at       netip.AddrPort
	cpus     [2]int
	devices  [2][]*lab.Device
}

// open opens a connection. Both ends stand when it returns, also where a proxy is between them.
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

// listen opens a socket as most servers do: without MPTCP, which Go takes by default.
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

// transfer opens a connection and moves bytes over it, back to where it comes from or there. It returns bytes per second of the time
// that it took, and of the time of the CPU that had most to do with it.
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

// received is how long the receive threads of both sides have run.
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
