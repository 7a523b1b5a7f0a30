package suggest_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/internal/suggest"
	"github.com/floodwall/floodwall/internal/testutil"
)

// attacks are the captures of ../shared/data/captures, and which of their packets are the attack.
var attacks = []struct {
	file   string
	attack func(p *packet.Packet) bool
}{
	{"pkt.TCP.synflood.spoofed.pcap", func(p *packet.Packet) bool { return p.Value[packet.Flags] == 0x02 }},
	{"amp.TCP.reflection.SYNACK.pcap", func(p *packet.Packet) bool { return p.Value[packet.Flags] == 0x12 }},
	{"amp.UDP.isakmp.pcap", func(p *packet.Packet) bool { return p.Value[packet.SPort] == packet.PortUDP+4500 }},
	{"amp.dns.RRSIG.fragmented.pcap", func(p *packet.Packet) bool {
		large := p.Value[packet.SPort] == packet.PortUDP+53 && p.Value[packet.Fragment] == packet.FragmentFirst
		return large || p.Value[packet.Proto] == packet.ProtoUDP && p.Value[packet.Fragment] == packet.FragmentLater
	}},
}

// TestCaptures finds rules against real attacks in 5 seconds of their traffic, and judges them by the packets of the whole attack, and
// by legitimate packets that the search did not see: they must match at least 95% of the former and at most 0.1% of the latter. The
// legitimate packets are generated; with FLOODWALL_LONG=1 they are those that scripts/traces fetches.
func TestCaptures(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("FLOODWALL_TRACES")
	if dir == "" {
		dir = "../../../shared/data/captures"
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is missing: FLOODWALL_TRACES names a directory with captures of attacks", dir)
	}
	r := testutil.Random(t)
	baseline, judged := legitimate(r, 10_000), legitimate(r, 10_000)
	if testutil.Long() {
		baseline, judged = recorded(t)
	}
	for _, a := range attacks {
		path := filepath.Join(dir, a.file)
		samples, _, _, err := suggest.ReadFile(path, suggest.MostAttack, 5*time.Second)
		check(t, err)
		found, err := suggest.Find(suggest.Input{Program: &ir.Program{}, Attack: samples, Good: baseline, Collateral: 0.001})
		check(t, err)
		all, _, _, err := suggest.ReadFile(path, 1<<20, 0)
		check(t, err)
		var attack []suggest.Sample
		for _, s := range all {
			if a.attack(&s.Packet) {
				attack = append(attack, s)
			}
		}
		covered, harmed := 0, 0
		for _, rule := range found.Rules {
			covered += matches(t, rule, attack) // rules do not overlap
			harmed += matches(t, rule, judged)
			t.Logf("%s", rule.Text)
		}
		coverage, collateral := float64(covered)/float64(len(attack)), float64(harmed)/float64(len(judged))
		t.Logf("%s: %.2f%% of %d packets of the attack, %.3f%% of %d legitimate ones", a.file, 100*coverage, len(attack), 100*collateral, len(judged))
		if len(attack) < 1000 || coverage < 0.95 || collateral > 0.001 {
			t.Errorf("%s: want at least 95%% of the attack, and at most 0.1%% of the legitimate packets", a.file)
		}
	}
}

func matches(t *testing.T, rule suggest.Rule, samples []suggest.Sample) int {
	t.Helper()
	n, err := rule.Matches(samples)
	check(t, err)
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorded are the legitimate packets that scripts/traces fetches, half of them to learn from and half to judge by. All go to the
// victim of the attacks: the destination must not be what tells them apart.
func recorded(t *testing.T) (baseline, judged []suggest.Sample) {
	t.Helper()
	home, err := os.UserHomeDir()
	check(t, err)
	dir := filepath.Join(home, ".cache/floodwall/traces")
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		samples, _, _, err := suggest.ReadFile(path, 2000, 0)
		if err != nil {
			t.Logf("left out: %v", err) // another link layer
			return nil
		}
		for i := range samples {
			if samples[i].Dst.Is4() {
				samples[i].Dst = victim
			}
			if i%2 == 0 {
				baseline = append(baseline, samples[i])
			} else {
				judged = append(judged, samples[i])
			}
		}
		return nil
	})
	if err != nil || len(judged) < 10_000 {
		t.Fatalf("%d legitimate packets in %s (%v): run scripts/traces", len(judged), dir, err)
	}
	return baseline, judged
}

var victim = netip.MustParseAddr("10.10.10.10")
