// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	a2s "github.com/rumblefrog/go-a2s"
	"github.com/sandertv/go-raknet"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// openedService is a UDP service, the first packets that an attacker forges for it, and newcomers that use a public library.
type openedService struct {
	protocol string
	library  string
	port     uint16
	payload  []byte
	random   int           // offset of the random bytes in the payload
	proves   bool          // clients prove their address, so all are served
	wait     time.Duration // the longest time for which a newcomer waits for its first answer
	open     func(s *scene, newcomers int) newcomer
}

// newcomer is a function that reports whether newcomer i gets its first answer in time.
type newcomer func(ctx context.Context, i int) bool

// The first packets that an attacker forges. If the protocol has a connection identifier, its bytes are random.
var (
	quicInitial     = append([]byte{0xc3, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x44, 0x96}, make([]byte, 1174)...)
	wireGuardBegins = append([]byte{1, 0, 0, 0}, bytes.Repeat([]byte{7}, 144)...)
	a2sInfo         = []byte("\xff\xff\xff\xffTSource Engine Query\x00")
	rakNetRequest   = append(append([]byte{5}, "\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78\x0b"...), make([]byte, 1000)...)
)

// WireGuard repeats its initiation after 5 s (whitepaper, 6.1), so its newcomers wait longer.
var openedServices = []openedService{
	{"quic", "quic-go", 443, quicInitial, 6, false, 3 * time.Second, openedQUIC((*scene).changing)},
	{"quic", "net-quic", 443, quicInitial, 6, false, 3 * time.Second, openedQUIC((*scene).staying)},
	{"wireguard", "wireguard-go", 51820, wireGuardBegins, 8, false, 8 * time.Second, openedWireGuard},
	{"a2s", "go-a2s", 27015, a2sInfo, 0, true, 3 * time.Second, openedGameServer},
	{"a2s", "quakestat", 27015, a2sInfo, 0, true, 3 * time.Second, openedToQuakestat},
	{"raknet", "go-raknet", 19132, rakNetRequest, 0, true, 3 * time.Second, openedRakNet},
	{"generic", "socket", 7000, make([]byte, 40), 8, false, 3 * time.Second, openedGame},
}

func openedQUIC(client func(s *scene, from, to string) (*quicClient, error)) func(*scene, int) newcomer {
	return func(s *scene, _ int) newcomer {
		s.quicServer(8)
		from, to := s.newcomers()
		return func(ctx context.Context, i int) bool {
			c, err := client(s, from(i), to(i, 443))
			return err == nil && c.ask(ctx, "question") && ctx.Err() == nil
		}
	}
}

func openedWireGuard(s *scene, newcomers int) newcomer {
	_, pings := s.tunnels(newcomers, func(int) string { return "10.1.0.2:51820" })
	return func(ctx context.Context, i int) bool {
		return pings(i, 1, 8) == 1 && ctx.Err() == nil
	}
}

func openedGameServer(s *scene, _ int) newcomer {
	s.openGameServer()
	_, to := s.newcomers()
	return func(ctx context.Context, i int) bool {
		var c *a2s.Client
		if err := s.client.Do(func() (err error) { c, err = a2s.NewClient(to(i, 27015), a2s.TimeoutOption(time.Second)); return err }); err != nil {
			s.Error(err)
			return false
		}
		defer c.Close()
		for ctx.Err() == nil {
			if _, err := c.QueryInfo(); err == nil {
				return ctx.Err() == nil
			}
		}
		return false
	}
}

func openedToQuakestat(s *scene, _ int) newcomer {
	s.openGameServer()
	_, to := s.newcomers()
	return func(ctx context.Context, i int) bool {
		out := ""
		err := s.client.Do(func() error {
			text, err := exec.CommandContext(ctx, "quakestat", "-a2s", to(0, 27015), "-retry", "3", "-interval", "1").CombinedOutput()
			out = string(text)
			return err
		})
		return err == nil && strings.Contains(out, gameName) && ctx.Err() == nil
	}
}

func openedRakNet(s *scene, _ int) newcomer {
	g := s.openRakNet(true)
	_, to := s.newcomers()
	return func(ctx context.Context, i int) bool {
		c, err := (raknet.Dialer{UpstreamDialer: g}).DialContext(ctx, to(i, 19132))
		if err == nil {
			c.Close()
		}
		return err == nil
	}
}

func openedGame(s *scene, _ int) newcomer {
	s.openGame()
	_, to := s.newcomers()
	return func(ctx context.Context, i int) bool {
		c, err := s.client.Dial(ctx, "udp", netip.MustParseAddrPort(to(i, 7000)))
		if err != nil {
			s.Error(err)
			return false
		}
		defer c.Close()
		_, all := player{c}.play(1)
		return all == 1 && ctx.Err() == nil
	}
}

// served returns two numbers: the newcomers that get their first answer in time during a flood of forged first packets, and the packets per second of
// this flood.
func (s *scene) served(of openedService, rate float64, newcomers int, policy string) (served int, sent float64) {
	s.Helper()
	if _, err := s.lab.NewSink(s.clientEnd, lab.PassAll); err != nil { // without it the client does not receive XDP's packets: see synScene.hear
		s.Fatal(err)
	}
	comes := of.open(s, newcomers)
	s.apply(plan.TargetXDP, policy)
	source, err := s.lab.NewSource(s.attackerEnd, lab.SourceOptions{
		Flows: []lab.Flow{{
			From: lab.MustAddrs("128.0.0.0/2"), To: lab.MustAddrs("10.0.0.2"), SPort: lab.AnyPort, DPort: lab.Port(of.port), Payload: of.payload, Random: of.random,
		}},
		Rate: rate, Batch: 16,
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithTimeout(s.ctx, time.Minute)
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	for source.Sent() < uint64(3*rate) && ctx.Err() == nil { // a flood above start uses up its burst first
		time.Sleep(10 * time.Millisecond)
	}
	var wait sync.WaitGroup
	var answered atomic.Int32
	for i := range newcomers {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, of.wait)
			defer cancel()
			if comes(ctx, i) {
				answered.Add(1)
			}
		})
	}
	wait.Wait()
	sent = float64(source.Sent()) / time.Since(began).Seconds()
	stop()
	if err := <-done; err != nil {
		s.Error(err)
	}
	return int(answered.Load()), sent
}

// TestNewcomersShare logs how many newcomers a service serves during a flood of forged first packets, without and with the protection of its
// protocol. Below start, the protection must drop nothing, so both numbers must be equal. Above start, the protected service must serve at least as
// many newcomers: clients that prove their address at once, and other clients when they send again. The test takes minutes, and the flood occupies
// one of two CPUs. So it runs only in the long form, on an idle machine.
func TestNewcomersShare(t *testing.T) {
	if !testutil.Long() {
		return
	}
	testutil.RequireTool(t, "quakestat")
	const newcomers, chance = 20, 4 // chance is how many fewer may be served in one of two runs
	for _, of := range openedServices {
		for _, rate := range []float64{12_000, 40_000} {
			t.Run(fmt.Sprintf("%s/%s/%.0f", of.protocol, of.library, rate), func(t *testing.T) {
				bare := 0 // served without a protection
				for _, protect := range []string{"", ", udp: {protect: " + of.protocol + "}"} {
					inScene(t, func(s *scene) {
						policy := fmt.Sprintf("default: drop\nservices: [{name: svc, port: udp/%d%s}]\n", of.port, protect)
						served, sent := s.served(of, rate, newcomers, policy)
						t.Logf("%q beside %.0f/s: %d of %d are served", strings.TrimPrefix(protect, ", "), sent, served, newcomers)
						if protect == "" {
							bare = served
							return
						}
						refused := s.counted("svc:total") + s.counted("svc:limit")
						t.Logf("%d first packets are refused, %d packets pass as they come again", refused, s.counted("svc:again"))
						switch {
						case rate > 12_000 && served < bare-chance: // below start both are equal, but for chance
							t.Errorf("%d are served, and %d without the protection", served, bare)
						case of.proves && served < newcomers:
							t.Error("not all are served that prove their address")
						case !of.proves && of.protocol != "generic" && rate == 12_000 && refused > 0:
							t.Error("first packets are refused below start")
						}
					})
				}
			})
		}
	}
}
