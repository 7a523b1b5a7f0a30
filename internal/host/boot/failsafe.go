// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/policy"
)

// The fail-safe is loaded at boot when neither saved policy can be loaded. It is made together with each copy, while the policy is known to be valid.
// It is self-contained: a line with a SHA-256, and then a policy that names no file. A closed fail-safe drops all packets except essential ones,
// replies to the host's own connections, and the operator's SSH, from the addresses from which the policy passes SSH.

// Way is a session of the operator.
type Way struct {
	Client netip.Addr
	Port   uint16 // the port of the server
}

// The first line of every fail-safe, and the text of a fail-safe that drops nothing.
const (
	sumLine  = "# sha256 "
	openText = "# boot: open\n"
)

// portSSH is the SSH port for an operator who has no session now.
const portSSH = 22

// answersRule passes replies. It takes the place of `replies: pass`. It needs conntrack, and so nftables or iptables. Without them it cannot be
// loaded, but the rules for incoming connections still work.
const answersRule = "  - {name: answers, state: [established, related], then: pass}\n"

// NewFailsafe returns the text of the fail-safe of a policy for devices. ways are the sessions that it must not cut. If the fail-safe passes no
// incoming connection, note says so.
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
		client := w.Client.Unmap().WithZone("")
		f.pass([]policy.Addr{{AddrRange: policy.AddrRange{First: client, Last: client}}}, nil)
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

// failsafe is a fail-safe under construction.
type failsafe struct {
	policy *policy.Policy
	ports  []uint16
	rules  []string
}

// collect adds rules for the senders that the policy passes on the ports, with services or with rules that test only addresses and ports.
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

// serves reports whether a list of policy ports contains one of the ports for TCP.
func (f *failsafe) serves(list []policy.Port) bool {
	return slices.ContainsFunc(list, func(p policy.Port) bool {
		return (p.Proto == 0 || p.Proto == unix.IPPROTO_TCP) &&
			slices.ContainsFunc(f.ports, func(n uint16) bool { return p.First <= n && n <= p.Last })
	})
}

// plain reports whether a rule tests only addresses, TCP and the ports.
func (f *failsafe) plain(r policy.Rule) bool {
	m := r.Match
	ports, proto := m.Port, m.Proto
	m.From, m.To, m.Port, m.Proto, m.Family = nil, nil, nil, nil, nil
	return isZero(m) && isZero(r.Not) && (ports == nil || f.serves(ports)) && (proto == nil || slices.Contains(proto, unix.IPPROTO_TCP))
}

func isZero(m policy.Match) bool { return reflect.ValueOf(m).IsZero() }

// passAddrs adds a rule for addresses of the policy. nil means all addresses.
func (f *failsafe) passAddrs(from, to []policy.Addr) error {
	sources, err := f.withoutSets(from)
	if err != nil {
		return err
	}
	targets, err := f.withoutSets(to)
	if err != nil {
		return err
	}
	if from != nil && sources == nil || to != nil && targets == nil { // all sets in the list are filled only while the policy runs
		return nil
	}
	f.pass(sources, targets)
	return nil
}

// pass adds a rule that passes packets from the sources to the targets on the ports.
func (f *failsafe) pass(from, to []policy.Addr) {
	r := policy.Rule{Name: fmt.Sprintf("operator-%d", len(f.rules)+1), Match: policy.Match{From: from, To: to}, Then: policy.Pass}
	for _, p := range f.ports {
		r.Match.Port = append(r.Match.Port, policy.Port{Proto: unix.IPPROTO_TCP, First: p, Last: p})
	}
	f.rules = append(f.rules, "  - "+r.Line()+"\n")
}

// withoutSets replaces each set in a list by the set's addresses.
func (f *failsafe) withoutSets(list []policy.Addr) (written []policy.Addr, err error) {
	for _, a := range list {
		if a.Set == "" {
			written = append(written, a)
			continue
		}
		more, err := f.setAddrs(a.Set)
		if err != nil {
			return nil, err
		}
		written = append(written, more...)
	}
	return written, nil
}

// setAddrs returns the addresses of a set.
func (f *failsafe) setAddrs(name string) (list []policy.Addr, err error) {
	i := slices.IndexFunc(f.policy.Sets, func(s policy.Set) bool { return s.Name == name })
	if i < 0 {
		return nil, nil
	}
	set := f.policy.Sets[i]
	for _, r := range set.Inline {
		list = append(list, policy.Addr{AddrRange: r})
	}
	if set.File == "" {
		return list, nil
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
		list = append(list, policy.AddrOf(p))
	}
	return list, nil
}

// Failsafe returns the policies to load when no saved policy can be loaded, as texts. The caller uses the first one that can be loaded. If the policy
// wants the host to be open, there is no text. If no fail-safe is intact, Failsafe returns one that is closed on the given devices, with SSH from any
// address, because closing too much is better than opening a host that may have been closed.
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

// lastResort is the file name of a fail-safe that does not come from a copy.
const lastResort = "fail-safe of floodwall"

// StoodIn reports whether the running policy was loaded at boot because the current copy could not be loaded. It is then the previous copy,
// identified by id, or a fail-safe, identified by file.
func (s Store) StoodIn(id, file string) bool {
	return id != "" && id == s.target(previous) ||
		slices.Contains([]string{lastResort, s.path(current, failsafeFile), s.path(previous, failsafeFile)}, file)
}

// readFailsafe reads a fail-safe, and checks its SHA-256.
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
