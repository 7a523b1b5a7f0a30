// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/policy"
)

// BanLimits has the limits of the running policy for `ban`, and the prefixes that are never banned.
type BanLimits struct {
	Key        uint64 // identifies the policy; the number of a generation does not, because numbers are reused
	Generation int
	Policy     string         // the path of the policy file
	Limits     []BanLimit     // by the number of the limit in an offence
	Allowlist  []netip.Prefix // prefixes that the policy names, and the addresses of the operators who applied the policy
}

// BanLimit is a limit of a rule.
type BanLimit struct {
	Rule string
	Ban  *manifest.BanAction // nil: the limit bans no prefix
}

// BanLimits returns the limits of the running policy for `ban`. It also opens the map of offences against these limits, unless known is the key of
// the running policy. All results are nil if no policy runs or no limit bans.
func (in Instance) BanLimits(ctx context.Context, known uint64) (b *BanLimits, offences *datapath.Offences, err error) {
	l, err := generation.Find(ctx, in.Dir)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	g := l.Generations[0]
	m := g.Manifest
	if g.Program == nil || m.BanningRule() == "" {
		return nil, nil, nil
	}
	b = &BanLimits{Key: m.Key, Generation: g.Number, Policy: m.File, Allowlist: slices.Concat(m.Never, m.Operators)}
	for _, limit := range m.Limits {
		b.Limits = append(b.Limits, BanLimit{limit.Rule, limit.Ban})
	}
	if m.Key != known {
		offences, err = g.Program.Offences()
	}
	return b, offences, err
}

// NobodyBanned is the start of the warning that bans need the daemon.
const NobodyBanned = "nobody is banned"

// WithoutDaemon is in each warning that a part of the policy needs the daemon.
const WithoutDaemon = " while `floodwall daemon` does not run"

const startDaemon = WithoutDaemon + ": start it; `apply --boot` has systemd start it after each reboot"

// bansWaitFor returns the warning that bans need the daemon. It returns "" if a daemon runs or no rule bans.
func (in Instance) bansWaitFor(m *manifest.Manifest) string {
	rule := m.BanningRule()
	if rule == "" || in.HasDaemon() {
		return ""
	}
	return fmt.Sprintf(NobodyBanned+" for rule %q"+startDaemon, rule)
}

// HasDaemon reports whether a daemon runs for the instance.
func (in Instance) HasDaemon() bool { return instance.LockOf(in.Dir).Held() }

// RunningPolicy has the settings of the running policy that other programs need.
type RunningPolicy struct {
	Key       uint64         // identifies the policy
	Program   ebpf.ProgramID // ID of the XDP program that decides, 0 for none; no two programs have the same ID, even for the same policy
	File      string         // the path of the policy file
	Daemon    policy.Daemon
	Lists     bool           // whether the policy has sets whose content is replaced while it runs
	Legacy    bool           // whether the policy has rules in iptables
	Allowlist []netip.Prefix // prefixes that no program may ban: prefixes that the policy names, and addresses of the operators who applied it

	Temporary []manifest.Temporary // the temporary rules; some may have ended

	MovesByFlood bool // whether the program moves between tc and XDP as a flood begins and ends
}

// RunningPolicy reads the settings of the policy that runs.
func (in Instance) RunningPolicy(ctx context.Context) (RunningPolicy, error) {
	return in.Asked.Of(func() (w RunningPolicy, err error) {
		l, err := generation.Find(ctx, in.Dir)
		if err != nil {
			return w, err
		}
		defer l.Close()
		m := l.Generations[0].Manifest
		w = RunningPolicy{
			Key: m.Key, File: m.File, Lists: len(m.Live) > 0, Legacy: m.RulesetOf(netfilter.KindIptables) != nil,
			Allowlist: slices.Concat(m.Never, m.Operators), Temporary: m.Temporary, MovesByFlood: len(m.Floods()) > 0,
		}
		if m.Daemon != nil {
			w.Daemon = *m.Daemon
		}
		w.Program, err = l.Generations[0].ProgramID()
		return w, err
	})
}

// DynamicSet finds a dynamic set of the running policy by its name. "" means the only dynamic set, or the one named bans.
func (in Instance) DynamicSet(ctx context.Context, name string) (manifest.Set, error) {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return manifest.Set{}, err
	}
	defer l.Close()
	return ban.Named(l.Generations[0].Manifest, name)
}

// DaemonSettings returns the settings for the daemon in the running policy.
func (in Instance) DaemonSettings(ctx context.Context) (policy.Daemon, error) {
	w, err := in.RunningPolicy(ctx)
	return w.Daemon, err
}

// settingsWaitFor returns the warning that settings of the policy need a daemon. It returns "" if a daemon runs or no setting needs one.
func (in Instance) settingsWaitFor(m *manifest.Manifest) string {
	var waits []string
	if m.Daemon != nil {
		waits = append(waits, m.Daemon.Waits())
	}
	if slices.ContainsFunc(m.Devices, func(d string) bool { return m.MovesByFlood(d) && !m.Home(d).Auto }) {
		waits = append(waits, "`xdp: flooded` has no effect")
	}
	if waits == nil || in.HasDaemon() {
		return ""
	}
	return strings.Join(waits, ", and ") + startDaemon
}
