package boot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/policy"
)

// The fail-safe is what a host does at boot when neither of its saved policies can be loaded. It is made with each copy, while
// everything is known to be right, and is complete by itself: a policy that names no file, behind a line with its SHA-256.
// Closed, it drops all but what is essential, answers to the host's own connections, and the operator's way in: SSH, from
// where the policy lets it in.

// Way is a session of the operator.
type Way struct {
	Client netip.Addr
	Port   uint16 // of the server
}

// The beginnings of a fail-safe: of what follows, and of one that drops nothing.
const (
	sumLine  = "# sha256 "
	openText = "# boot: open\n"
)

// portSSH is where an operator comes in who has no session now.
const portSSH = 22

// answersRule lets answers in, in place of `replies: pass`. It takes conntrack, and so nftables or iptables: without those, who comes in is still let in.
const answersRule = "  - {name: answers, state: [established, related], then: pass}\n"

// NewFailsafe makes the fail-safe of a policy for devices. ways are the sessions that it must not cut. If it lets nobody in,
// the note says so.
func NewFailsafe(p *policy.Policy, devices []string, ways []Way) (text, note string, err error) {
	if !p.BootClosed {
		return sealed(openText), "", nil
	}
	f := &failsafe{policy: p, ports: []uint16{portSSH}}
	for _, w := range ways {
		if !slices.Contains(f.ports, w.Port) {
			f.ports = append(f.ports, w.Port)
		}
	}
	if err := f.collect(); err != nil {
		return "", "", err
	}
	for _, w := range ways {
		f.pass([]string{strconv.Quote(w.Client.Unmap().WithZone("").String())}, nil)
	}
	if p.Default == policy.Pass {
		f.pass(nil, nil)
	}
	if f.rules == nil {
		note = "no rule or service passes SSH: if none of the saved policies can be loaded at boot, nobody gets in over the network " +
			"(`boot: open` in the policy has nothing dropped then)"
	}
	return sealed(closedText(devices, f.rules)), note, nil
}

func closedText(devices, rules []string) string {
	quoted := make([]string, len(devices))
	for i, d := range devices {
		quoted[i] = strconv.Quote(d)
	}
	return "# boot: closed\ndevices: [" + strings.Join(quoted, ", ") + "]\ndefault: drop\nreplies: drop\nrules:\n" + answersRule + strings.Join(rules, "")
}

func sealed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return sumLine + hex.EncodeToString(sum[:]) + "\n" + text
}

// failsafe is one in the making.
type failsafe struct {
	policy *policy.Policy
	ports  []uint16
	rules  []string
}

// collect finds who may come in: services on the ports, and rules that pass for no other reason than addresses and ports.
func (f *failsafe) collect() error {
	for _, s := range f.policy.Services {
		if f.serves(s.Port) {
			if err := f.passAddrs(s.From, nil); err != nil {
				return err
			}
		}
	}
	for _, r := range f.policy.Rules {
		if r.Then != policy.Pass || r.Observe || len(r.Over) > 0 || !f.plain(r) {
			continue
		}
		if err := f.passAddrs(r.Match.From, r.Match.To); err != nil {
			return err
		}
	}
	return nil
}

// serves reports whether some of the ports are among these, for TCP.
func (f *failsafe) serves(list []policy.Port) bool {
	return slices.ContainsFunc(list, func(p policy.Port) bool {
		return (p.Proto == 0 || p.Proto == unix.IPPROTO_TCP) &&
			slices.ContainsFunc(f.ports, func(n uint16) bool { return p.First <= n && n <= p.Last })
	})
}

// plain reports whether a rule asks for no more than addresses, TCP and the ports.
func (f *failsafe) plain(r policy.Rule) bool {
	m := r.Match
	ports, proto := m.Port, m.Proto
	m.From, m.To, m.Port, m.Proto, m.Family = nil, nil, nil, nil, nil
	return isZero(m) && isZero(r.Not) && (ports == nil || f.serves(ports)) && (proto == nil || slices.Contains(proto, unix.IPPROTO_TCP))
}

func isZero(m policy.Match) bool {
	return m.From == nil && m.To == nil && m.Proto == nil && m.Port == nil && m.SPort == nil && m.Family == nil && m.Flags == nil &&
		m.ICMP == nil && m.Length == nil && m.TTL == nil && m.DSCP == nil && m.MSS == nil && m.Fragment == nil && m.VLAN == nil &&
		m.Payload == nil && m.DNS == nil && m.State == nil
}

// passAddrs passes who is at some addresses of the policy; nil is everybody.
func (f *failsafe) passAddrs(from, to []policy.Addr) error {
	sources, err := f.texts(from)
	if err != nil {
		return err
	}
	targets, err := f.texts(to)
	if err != nil {
		return err
	}
	if from != nil && sources == nil || to != nil && targets == nil { // all of it is filled when the policy runs
		return nil
	}
	f.pass(sources, targets)
	return nil
}

// pass adds a rule.
func (f *failsafe) pass(from, to []string) {
	keys := fmt.Sprintf("  - {name: operator-%d, proto: tcp, port: [", len(f.rules)+1)
	for i, p := range f.ports {
		if i > 0 {
			keys += ", "
		}
		keys += strconv.Itoa(int(p))
	}
	keys += "]"
	if from != nil {
		keys += ", from: [" + strings.Join(from, ", ") + "]"
	}
	if to != nil {
		keys += ", to: [" + strings.Join(to, ", ") + "]"
	}
	f.rules = append(f.rules, keys+", then: pass}\n")
}

// texts are addresses as a policy without sets has them.
func (f *failsafe) texts(list []policy.Addr) (texts []string, err error) {
	for _, a := range list {
		switch {
		case a.Local:
			texts = append(texts, "local")
		case a.Set == "":
			texts = append(texts, quotedRange(a.AddrRange))
		default:
			more, err := f.setTexts(a.Set)
			if err != nil {
				return nil, err
			}
			texts = append(texts, more...)
		}
	}
	return texts, nil
}

func quotedRange(r policy.AddrRange) string {
	if r.First == r.Last {
		return strconv.Quote(r.First.String())
	}
	return strconv.Quote(r.First.String() + "-" + r.Last.String())
}

// setTexts are the addresses of a set.
func (f *failsafe) setTexts(name string) (texts []string, err error) {
	i := slices.IndexFunc(f.policy.Sets, func(s policy.Set) bool { return s.Name == name })
	if i < 0 {
		return nil, nil
	}
	set := f.policy.Sets[i]
	for _, r := range set.Inline {
		texts = append(texts, quotedRange(r))
	}
	if set.File == "" {
		return texts, nil
	}
	path := set.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(f.policy.File), path)
	}
	content, _, err := addrs.ReadFile(path, set.Max)
	if err != nil {
		return nil, err
	}
	for p := range content.Prefixes() {
		texts = append(texts, strconv.Quote(p.String()))
	}
	return texts, nil
}

// Failsafe is what to load when no saved policy can be: texts of policies, of which the first that can be loaded is taken, or
// none when the policy wants the host open. Without one that is whole it is closed on these devices, with SSH from anywhere:
// it is better to ask too much than to open what may have been closed.
func (s Store) Failsafe(devices []string) (texts []string, file string) {
	if s.check() == nil {
		for _, link := range []string{current, previous} {
			file := s.path(link, failsafeFile)
			text, err := readFailsafe(file)
			if err == nil && text == openText {
				return nil, file
			}
			if err == nil {
				return []string{text, strings.Replace(text, answersRule, "", 1)}, file
			}
		}
	}
	f := &failsafe{ports: []uint16{portSSH}}
	f.pass(nil, nil)
	text := closedText(devices, f.rules)
	return []string{text, strings.Replace(text, answersRule, "", 1)}, lastResort
}

// lastResort is the name of the fail-safe that no copy has.
const lastResort = "fail-safe of floodwall"

// StoodIn reports whether what runs is what is taken at boot when the copy that should come back cannot be: the copy before it,
// by its name, or a fail-safe, by its file.
func (s Store) StoodIn(id, file string) bool {
	return id != "" && id == s.target(previous) ||
		slices.Contains([]string{lastResort, s.path(current, failsafeFile), s.path(previous, failsafeFile)}, file)
}

// readFailsafe reads a fail-safe, and makes sure that it is whole.
func readFailsafe(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	sum := sha256.Sum256([]byte(rest))
	if line != sumLine+hex.EncodeToString(sum[:]) {
		return "", errors.New("it is damaged")
	}
	return rest, nil
}
