// SPDX-License-Identifier: Apache-2.0

package suggesttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// Attack is the traffic of an attack.
type Attack struct {
	Name    string
	Kind    string // the name of the attack's kind in reports
	Packets []sample.Sample
	Is      func(p *packet.Packet) bool // reports whether a packet belongs to the attack
}

// Attacks returns the real attacks whose captures are in the directory FLOODWALL_TRACES. The default is shared/data/captures next to the repository
// at root. If this directory does not exist, Attacks returns generated attacks that resemble the real ones.
func Attacks(t testing.TB, root string, r *rand.Rand) []Attack {
	t.Helper()
	dir := os.Getenv("FLOODWALL_TRACES")
	if dir == "" {
		dir = filepath.Join(root, "../shared/data/captures")
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		t.Logf("%s is missing: the attacks are generated; FLOODWALL_TRACES names a directory with real ones", dir)
		return generated(r)
	}
	var list []Attack
	for _, r := range lab.Recordings {
		packets, err := read(filepath.Join(dir, r.File), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, Attack{Name: r.File, Kind: r.Kind, Packets: packets, Is: r.Attacks})
	}
	return list
}

// longest is the length in bytes of the longest frame with the usual MTU.
const longest = 1514

// read reads at most most packets from a capture.
func read(file string, most int) (list []sample.Sample, err error) {
	r, err := sample.OpenFile(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for len(list) < most {
		p, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if p.Length <= longest { // bytes that were not captured are padded
			p.Frame = append(p.Frame[:len(p.Frame):len(p.Frame)], make([]byte, max(0, p.Length-len(p.Frame)))...)
		}
		list = append(list, p)
	}
	return list, nil
}

// generated returns generated attacks. Each has 4,000 packets in 8 seconds.
func generated(r *rand.Rand) (list []Attack) {
	for i, line := range []func() string{
		func() string {
			return fmt.Sprintf("tcp %s:%d > %s:80 S ttl=%d seq=%d tcpopts=mss:1460,nop,nop,sack", anyone(r), 1024+r.IntN(64000), Victim, 230+r.IntN(20), r.Uint32())
		},
		func() string {
			return fmt.Sprintf("tcp %s:%d > %s:%d S. ttl=%d seq=%d ack=%d tcpopts=mss:1460", anyone(r), []int{80, 443, 22, 53}[r.IntN(4)], Victim, 4000+r.IntN(9), 40+r.IntN(80), r.Uint32(), r.Uint32())
		},
		func() string {
			return fmt.Sprintf("udp %s:4500 > %s:%d ttl=%d len=%d payload=0x00000000%08x", anyone(r), Victim, 1024+r.IntN(64000), 40+r.IntN(80), 200+r.IntN(9), r.Uint32())
		},
		func() string {
			return fmt.Sprintf("udp %s:53 > %s:%d ttl=%d len=1400 dns=ANY,evil.example,id:%d,response", anyone(r), Victim, 1024+r.IntN(64000), 40+r.IntN(80), r.IntN(65536))
		},
	} {
		a := Attack{Name: "generated like " + lab.Recordings[i].File, Kind: lab.Recordings[i].Kind, Is: func(*packet.Packet) bool { return true }}
		began := time.Unix(1.7e9, 0)
		for n := range 4000 {
			frame := Frame(line())
			a.Packets = append(a.Packets, sample.Sample{Time: began.Add(time.Duration(n) * 2 * time.Millisecond), Length: len(frame), Frame: frame})
		}
		list = append(list, a)
	}
	return list
}

// OnWire removes frames that are not IP packets, and frames that are longer than the usual MTU allows. A network card has merged the long frames from
// several frames.
func OnWire(frames [][]byte) [][]byte {
	return slices.DeleteFunc(slices.Clone(frames), func(f []byte) bool { return len(f) > longest || packet.Decode(f).Kind != packet.IP })
}

// Victim is the destination address of all packets.
const Victim = "10.10.10.10"

func anyone(r *rand.Rand) string {
	return fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(220), r.IntN(256), r.IntN(256), 1+r.IntN(254))
}

// Legitimate returns a random packet of a server's usual traffic, in the notation of explain.
func Legitimate(r *rand.Rand) string {
	client := anyone(r)
	ttl := []int{46, 50, 52, 55, 57, 58, 113, 116, 118, 120, 122, 240, 242, 244}[r.IntN(14)]
	port := 32768 + r.IntN(28000)
	tcp := fmt.Sprintf("tcp %s:%d > %s:%d", client, port, Victim, []int{443, 443, 443, 80, 25565, 22}[r.IntN(6)])
	udp := func(sport, dport int) string { return fmt.Sprintf("udp %s:%d > %s:%d", client, sport, Victim, dport) }
	switch r.IntN(20) {
	case 0, 1:
		return fmt.Sprintf("%s S ttl=%d seq=%d tcpopts=mss:1460,sack,ts,nop,ws:7", tcp, ttl, r.Uint32())
	case 2:
		return fmt.Sprintf("%s F. ttl=%d seq=%d ack=%d", tcp, ttl, r.Uint32(), r.Uint32())
	case 3:
		return fmt.Sprintf("tcp %s:443 > %s:%d S. ttl=%d seq=%d tcpopts=mss:1460,sack,ts,nop,ws:9", client, Victim, port, ttl, r.Uint32())
	case 4, 5:
		return fmt.Sprintf("%s ttl=%d dns=%s,%s.example,id:%d", udp(port, 53), ttl, []string{"A", "AAAA", "TXT", "MX"}[r.IntN(4)],
			[]string{"www", "mail", "a.b", "evil"}[r.IntN(4)], r.IntN(65536))
	case 6:
		return fmt.Sprintf("%s ttl=%d dns=A,www.example,id:%d,response", udp(53, port), ttl, r.IntN(65536))
	case 7, 8:
		return fmt.Sprintf("%s ttl=%d len=%d payload=0x%08x", udp(port, 443), ttl, 60+r.IntN(1190), r.Uint32())
	case 9:
		return fmt.Sprintf("%s ttl=%d len=76 payload=0x24010000", udp(123, 123), ttl)
	case 10, 11, 12:
		return fmt.Sprintf("%s . ttl=%d seq=%d ack=%d len=%d", tcp, ttl, r.Uint32(), r.Uint32(), []int{40, 52}[r.IntN(2)])
	case 13:
		return fmt.Sprintf("icmp %s > %s ttl=%d echo-request len=84", client, Victim, ttl)
	}
	return fmt.Sprintf("%s %s ttl=%d seq=%d ack=%d len=%d", tcp, []string{"P.", "."}[r.IntN(2)], ttl, r.Uint32(), r.Uint32(), 40+r.IntN(1460))
}

// Frame returns the frame of a packet. The parameter line has the notation of explain. Frame panics if it is invalid.
func Frame(line string) []byte {
	spec, err := packet.Parse(line)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", line, err))
	}
	return spec.Frame()
}

// Recorded returns the legitimate frames that scripts/traces downloads: one half as baseline, and the other half to judge rules. All have the
// destination of the attacks, so that the destination does not distinguish them from attacks.
func Recorded(t testing.TB) (baseline, judged [][]byte) {
	t.Helper()
	dir := filepath.Join(testutil.Cache(t), "traces")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		packets, err := read(path, 2000)
		if err != nil {
			t.Logf("left out: %v", err) // another link layer
			return nil
		}
		for i, p := range packets {
			if toVictim(p.Frame); i%2 == 0 {
				baseline = append(baseline, p.Frame)
			} else {
				judged = append(judged, p.Frame)
			}
		}
		return nil
	})
	if err != nil || len(judged) < 10_000 {
		t.Fatalf("%d legitimate packets in %s (%v): run scripts/traces", len(judged), dir, err)
	}
	return baseline, judged
}

// toVictim changes the destination of an IPv4 packet without VLAN tags to the victim. It does not correct the checksums, because no rule tests them.
func toVictim(frame []byte) {
	const ethernet, destination = 14, 16 // bytes of the header, and where the address is in that of IPv4 (RFC 791, 3.1)
	if len(frame) < ethernet+20 || binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
		return
	}
	victim := netip.MustParseAddr(Victim).As4()
	copy(frame[ethernet+destination:], victim[:])
}
