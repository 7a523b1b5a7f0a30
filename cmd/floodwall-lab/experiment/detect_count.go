package experiment

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/traffic"
)

// countClasses starts to count the packets of each class on both sides of the firewall. In front of the firewall, it counts the packets that real
// sockets of the clients' host send. Packets that this process sends itself do not pass this counter. They are counted where they are sent. Behind
// the firewall, it counts the packets that XDP passed on the server's link to the honest clients. A packet is counted for the first class that
// matches it.
func (s *detectSite) countClasses(ctx context.Context) error {
	for host, rules := range map[*lab.Host]string{
		s.clients.Host: classRules(s.classes, "type filter hook output priority 0;") + answersRules,
		s.server:       classRules(s.classes, fmt.Sprintf("type filter hook prerouting priority -400; iifname != %q accept", honestWire)),
	} {
		if _, _, err := rig.RunTool(ctx, host, strings.NewReader(rules), "nft", "-f", "-"); err != nil {
			return err
		}
	}
	return nil
}

// answersRules count and drop the server's answers over UDP. The UDP clients have no sockets, so without these rules their host would send ICMP
// errors to the server.
const answersRules = `table ip answers {
	counter answers { }
	chain come { type filter hook prerouting priority 0; ip protocol udp counter name answers drop; }
}
`

// classRules returns the rules of a host that count the packets of each class.
func classRules(classes []traffic.Class, hook string) string {
	var counters, rules strings.Builder
	for i, class := range classes {
		proto := map[lab.Proto]string{lab.UDP: "udp", lab.TCP: "tcp"}[class.Proto]
		test := "ip protocol " + proto
		if class.Port > 0 {
			test = fmt.Sprintf("%s dport %d", proto, class.Port)
		}
		fmt.Fprintf(&counters, "\tcounter c%d { }\n", i)
		fmt.Fprintf(&rules, "\t\tip saddr %s %s counter name c%d accept\n", class.From, test, i)
	}
	return fmt.Sprintf("table ip lab {\n%s\tchain classes {\n\t\t%s\n%s\t}\n}\n", counters.String(), hook, rules.String())
}

// detectCounts has the counters of both sides of the firewall.
type detectCounts struct {
	sent, passed   map[string]uint64 // packets of each class, by its name
	answers        uint64            // the server's answers over UDP
	honest, attack lab.DriverCounts  // counters of the server's links
}

// read reads all counters. It reads the counters of sent packets first. So a packet that is on its way does not count as lost.
func (n *detectCounts) read(ctx context.Context, s *detectSite) (err error) {
	if n.sent, n.answers, err = s.readClasses(ctx, s.clients.Host); err != nil {
		return err
	}
	if n.passed, _, err = s.readClasses(ctx, s.server); err != nil {
		return err
	}
	return n.readDrivers(s)
}

// readDrivers reads the counters of the links' drivers.
func (n *detectCounts) readDrivers(s *detectSite) (err error) {
	if n.honest, err = s.honest.DriverCounts(); err == nil {
		n.attack, err = s.attack.DriverCounts()
	}
	return err
}

// readClasses reads the counters of the classes on a host.
func (s *detectSite) readClasses(ctx context.Context, h *lab.Host) (counts map[string]uint64, answers uint64, err error) {
	text, _, err := rig.RunTool(ctx, h, nil, "nft", "-j", "list", "counters")
	if err != nil {
		return nil, 0, err
	}
	var list struct {
		All []struct {
			Counter struct {
				Name    string `json:"name"`
				Packets uint64 `json:"packets"`
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, 0, fmt.Errorf("counters of nft: %w", err)
	}
	counts = map[string]uint64{}
	for _, item := range list.All {
		var i int
		if _, err := fmt.Sscanf(item.Counter.Name, "c%d", &i); err == nil && i < len(s.classes) {
			counts[s.classes[i].Name] += item.Counter.Packets // several classes may have the same name
		}
		if item.Counter.Name == "answers" {
			answers = item.Counter.Packets
		}
	}
	return counts, answers, nil
}
