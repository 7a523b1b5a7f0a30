package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// exchange is a list, and the site at which the list is exchanged.
type exchange struct {
	*rig.Builder
	list   *rig.List
	dir    string
	site   *rig.Site
	ours   *product
	stalls *lab.Stalls
	holder map[*rig.Row]string // the thread that had another CPU in a row's longest stall; "" if there was none, or if it is not known
}

// build builds the site. An attacker and a client are at one end of a link. Floodwall and a service are at the other end.
func (e *exchange) build(ctx context.Context) (err error) {
	program, err := e.Find("floodwall")
	if err != nil {
		return err
	}
	if e.dir, err = os.MkdirTemp("", "floodwall-bench-"); err != nil {
		return err
	}
	e.Owned = append(e.Owned, func() error { return os.RemoveAll(e.dir) })
	end := lab.EndOptions{CPU: lab.OnCPU(otherCPU), Urgent: true, Queue: true}
	client := end
	client.First = true
	if e.site, err = rig.ConnectSite(e.Lab, 0, client, end); err != nil {
		return err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := e.site.Server.Route(netip.MustParsePrefix(half), e.site.Out.Addrs[0].Addr(), e.site.In); err != nil {
			return err
		}
	}
	stop, err := e.Lab.NewEchoProcess(e.site.Server, netip.AddrPortFrom(rig.Server4, exchangePort), otherCPU, lab.MoreUrgent)
	if err != nil {
		return err
	}
	e.Owned = append(e.Owned, stop)
	if e.ours, err = newProduct(e.site.Server, program, e.dir); err != nil {
		return err
	}
	e.Owned = append(e.Owned, e.ours.close)
	e.ours.cpu = workCPU
	if err := e.writeLists(); err != nil {
		return err
	}
	e.stalls, err = e.site.Server.WatchStalls(ctx, workCPU, otherCPU)
	return err
}

// writeLists writes two editions of the list, and a policy for each. The second edition lacks a tenth of the entries.
func (e *exchange) writeLists() error {
	fewer := *e.list
	fewer.Prefixes = fewer.Prefixes[:len(fewer.Prefixes)-max(len(fewer.Prefixes)/10, 1)]
	for i, l := range []*rig.List{e.list, &fewer} {
		file := filepath.Join(e.dir, fmt.Sprintf("list%d.txt", i))
		if err := report.WriteFile(file, l.Write); err != nil {
			return err
		}
		text := fmt.Sprintf("devices: [%s]\ndefault: drop\nsets: {listed: {file: %s}}\nrules: [{name: listed, from: $listed, then: drop}]\n"+
			"services: [{name: game, port: udp/%d}]\n", e.site.In.Name, strconv.Quote(file), exchangePort)
		if err := os.WriteFile(e.policy(i), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// policy returns the file of the policy with the given edition of the list.
func (e *exchange) policy(edition int) string {
	return filepath.Join(e.dir, fmt.Sprintf("policy%d.yaml", edition))
}

// freeTime returns the time after a command in which the kernel may still free memory. The kernel's workers do so after each CPU has left its old
// code (an RCU grace period).
func freeTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, 200*time.Millisecond, time.Second)
}

// notStopped returns err, or nil if err only says that something was stopped.
func notStopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// talk makes a client send datagrams for a time.
func (e *exchange) talk(ctx context.Context, lasts time.Duration) (lab.TalkSummary, error) {
	return lab.Talk(ctx, lab.TalkOptions{
		Host: e.site.Out.Host, Server: netip.AddrPortFrom(rig.Server4, exchangePort), From: []netip.Addr{e.site.Out.Addrs[0].Addr()}, Clients: 1,
		Port: firstClient, Payload: make([]byte, lab.TalkStamp), Rate: exchangeRate, Duration: lasts, Timeout: udpTimeout, CPU: otherCPU, Urgent: true,
	})
}

// ownName returns the kernel's name of this process.
func ownName() string {
	name, _ := os.ReadFile("/proc/self/comm") // the file exists
	return strings.TrimSpace(string(name))
}

// closePeer closes a program and its set if they are loaded.
func closePeer(p *rig.LoadedPeer) error {
	if p.Program == nil {
		return nil
	}
	err := errors.Join(p.Program.Close(), p.Set.Close())
	*p = rig.LoadedPeer{}
	return err
}

// fillHash fills a hash map with the addresses of the list.
func (e *exchange) fillHash() (rig.LoadedPeer, error) {
	keys := make([][4]byte, len(e.list.Prefixes))
	for i, prefix := range e.list.Prefixes {
		keys[i] = prefix.Addr().As4()
	}
	return fillPeer(rig.Hash4, keys)
}

// fillTrie fills an LPM trie with the prefixes of the list.
func (e *exchange) fillTrie() (rig.LoadedPeer, error) {
	return fillPeer(rig.LPM4, trieKeys(e.list.Prefixes, netip.Addr.As4))
}

// fillPeer loads a program of bpf/bench.c and fills its set.
func fillPeer[K any](program string, keys []K) (rig.LoadedPeer, error) {
	p, err := rig.LoadPeer(program, func(m *ebpf.MapSpec) { m.MaxEntries = uint32(len(keys)) }, nil)
	if err != nil {
		return p, err
	}
	if err := fill(p.Set, keys); err != nil {
		return rig.LoadedPeer{}, errors.Join(err, closePeer(&p))
	}
	return p, nil
}
