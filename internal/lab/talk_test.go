// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// newTalkers gives a pair's first host clients, and the other host a server that sends each datagram back.
func newTalkers(t *testing.T) TalkOptions {
	p, c := newCallers(t)
	o := TalkOptions{
		Host: c.Host, Server: c.Server, From: c.From, Clients: 10, Port: 20_000, Payload: bytes.Repeat([]byte{7}, 40),
		Rate: 1000, Duration: 200 * time.Millisecond, Timeout: 2 * time.Second,
	}
	stop, err := p.lab.NewEchoProcess(p.b.Host, o.Server, 0, Ordinary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// TestTalkJoins makes clients join a game server. It serves a client after that has sent its challenge or cookie back. A client that sends another
// datagram is not served.
func TestTalkJoins(t *testing.T) {
	o := newTalkers(t)
	for _, join := range []struct {
		first  string
		served int
	}{
		{"\xff\xff\xff\xffTSource Engine Query\x00", o.Clients},
		{"\x05" + string(rakNetMagic) + "\x0b" + strings.Repeat("\x00", 100), o.Clients},
		{"\xff\xff\xff\xffhello", 0},
	} {
		o.Join = []byte(join.first)
		unhurried(t, func() error {
			s, err := Talk(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if s.Clients > join.served || s.Answered > uint64(join.served) {
				t.Errorf("%q: %+v; want %d served", join.first, s, join.served)
			}
			if s.Clients < join.served || s.Answered < uint64(join.served) {
				return fmt.Errorf("%q: %+v; want %d served", join.first, s, join.served)
			}
			return nil
		})
	}
}

// TestTalk checks that a server answers all clients: at a rate, and when each sends after its answer.
func TestTalk(t *testing.T) {
	o := newTalkers(t)
	var s TalkSummary
	unhurried(t, func() (err error) {
		if s, err = Talk(t.Context(), o); err == nil && (s.Sent != 200 || s.Answered != 200 || s.Share() != 1 || s.Clients != o.Clients) {
			err = fmt.Errorf("%+v; want 200 of 200", s)
		}
		return err
	})
	if s.Latency.P50 <= 0 || s.Latency.P50 > s.Latency.P99 || s.Latency.Max > o.Timeout {
		t.Errorf("latency %+v", s.Latency)
	}
	o.Rate = 0
	s, err := Talk(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Sent < uint64(o.Clients) || s.Answered+uint64(o.Clients) < s.Sent || s.Clients != o.Clients {
		t.Errorf("without a rate: %+v", s)
	}
}

// TestTalkUnanswered sends to an address without a server.
func TestTalkUnanswered(t *testing.T) {
	o := newTalkers(t)
	o.Server = netip.AddrPortFrom(o.Server.Addr(), o.Server.Port()+1)
	o.Timeout = 50 * time.Millisecond
	for _, rate := range []float64{1000, 0} {
		o.Rate = rate
		s, err := Talk(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if s.Sent < uint64(o.Clients) || s.Answered != 0 || s.Clients != 0 {
			t.Errorf("rate %g: %+v; want no answer", rate, s)
		}
	}
}

// TestTalkRefused tests invalid options.
func TestTalkRefused(t *testing.T) {
	good := newTalkers(t)
	for want, change := range map[string]func(*TalkOptions){
		"payload of 15 bytes": func(o *TalkOptions) { o.Payload = o.Payload[:15] },
		"no clients":          func(o *TalkOptions) { o.Clients = 0 },
		"ports end at 65535":  func(o *TalkOptions) { o.Port = 65_530 },
		"must be positive":    func(o *TalkOptions) { o.Duration = 0 },
		"rate -1":             func(o *TalkOptions) { o.Rate = -1 },
		"client 10.7.0.1":     func(o *TalkOptions) { o.From = []netip.Addr{netip.MustParseAddr("10.7.0.1")} },
	} {
		o := good
		change(&o)
		if _, err := Talk(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
