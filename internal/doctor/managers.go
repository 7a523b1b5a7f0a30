// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// manager is a program that manages firewall rules, with its interactions with Floodwall.
type manager struct {
	id     string
	chains []string // prefixes of the names of its chains
	tables []string // names of its nft tables
	units  []string // its systemd units
	does   string
	advice string
	lines  []string // lines for the policy, in place of advice
}

// seesTranslated says which destination rules see if NAT redirects packets at prerouting. The NAT of prerouting runs at priority -100, raw at -300,
// and filter at 0 (kernel include/uapi/linux/netfilter_ipv4.h).
const seesTranslated = "rules at xdp, ingress and raw see the original port, and rules at filter run behind the NAT of " +
	"prerouting and see the translated destination"

// known are the managers that are common on hosts. The comment of each names the documentation or code that is the source.
var known = []manager{
	{
		"ufw", []string{"ufw-", "ufw6-"}, nil, []string{"ufw.service"}, // ufw-init-functions: iptables-restore -n
		"`ufw reload` rewrites its own chains only; `ufw disable` and `ufw reset` set INPUT to accept. It works at filter: " +
			"what Floodwall drops before, ufw neither counts nor logs",
		"keep opening ports in both: a packet must pass Floodwall and ufw; or `floodwall import iptables-save`, then `ufw disable`",
		nil,
	}, {
		"firewalld", []string{"filter_INPUT_ZONES", "IN_public", "INPUT_ZONES"}, []string{"firewalld"}, // firewalld.conf(5), FlushAllOnReload
		[]string{"firewalld.service"},
		"a reload replaces its own nft table only; with FirewallBackend=iptables it flushes all chains of iptables, also " +
			"those of Floodwall's target iptables",
		"use the targets xdp or nftables beside it, and keep opening ports in both",
		nil,
	}, {
		"docker", []string{"DOCKER"}, []string{"docker-bridges"}, []string{"docker.service"}, // docs.docker.com, packet filtering
		"published ports are redirected at prerouting and forwarded. With `docker run -p 8080:80`, " + seesTranslated +
			" (172.17.0.2:80): with a `default: drop` that stays at filter, a service on the published port that is repeated at " +
			"filter no longer matches, and its packets are dropped. A policy without `state` keeps the default at xdp, where this " +
			"does not happen; else pass the translated destination too. The rule passes all published ports; with proto and port " +
			"of the container, it passes fewer. A service with `track: false` cannot be one of a container, since NAT needs " +
			"tracking. Docker inserts its chains before all others of forward, and sets FORWARD to drop",
		"",
		[]string{"rules:", "  - {name: docker, to: 172.16.0.0/12, then: pass}  # the last rule, before the default; or your containers' networks"},
	}, {
		"fail2ban", []string{"f2b-"}, []string{"f2b-table"}, []string{"fail2ban.service"}, // config/action.d/iptables.conf
		"a rule or a set entry for each ban, looked at after connection tracking; it flushes its own chains only",
		"actionban = floodwall block <ip> --for <bantime>s --why <name>; actionunban = floodwall unblock <ip>",
		nil,
	}, {
		"kube-proxy", []string{"KUBE-"}, []string{"kube-proxy"}, []string{"kubelet.service", "k3s.service"}, // pkg/proxy/iptables
		"it writes its own chains again and again, with iptables-restore --noflush, and jumps to them from the front of " +
			"input, forward, output and of nat: service addresses are redirected before filter. " + seesTranslated,
		"filter node ports and load balancer addresses at xdp or raw, before the redirection; where `default: drop` stays at " +
			"filter, pass the pods' addresses there, too; never `track: false` for them",
		nil,
	}, {
		"cilium", []string{"CILIUM_"}, nil, []string{"cilium.service"}, // docs.cilium.io, XDP acceleration
		"its programs at tc redirect packets past netfilter; with XDP acceleration it takes the device's place for XDP",
		"put Floodwall on a device that cilium leaves alone, or switch loadBalancer.acceleration off",
		nil,
	}, {
		"crowdsec", []string{"CROWDSEC", "crowdsec"}, []string{"crowdsec", "crowdsec6"}, []string{"crowdsec-firewall-bouncer.service"},
		"it fills sets of its own and looks at them at filter, after connection tracking",
		"feed its decisions to `floodwall block -`, which drops at xdp",
		nil,
	},
}

// managers finds other programs that manage the firewall.
func managers(ctx context.Context, h *host) (found []Finding) {
	units := readUnits(ctx, h)
	rules, err := h.rules()
	if err != nil {
		rules = &ruleset{}
		found = append(found, unseen("manager", err))
	}
	for _, m := range known {
		found = append(found, m.judge(rules, units))
	}
	ours := rules.ownTables()
	return append(found, nftablesService(h, units, ours), persistentRules(h, units, ours), savedFiles(h))
}

// Managers returns the names of the managers that have rules in the kernel.
func Managers(ctx context.Context) (names []string, err error) {
	rules, err := newHost(ctx, Options{}, nil).rules()
	if err != nil {
		return nil, err
	}
	for _, m := range known {
		if len(m.signs(rules, nil)) > 0 {
			names = append(names, m.id)
		}
	}
	return names, nil
}

func (m manager) judge(r *ruleset, units map[string]unit) Finding {
	f := Finding{ID: "manager-" + m.id, Severity: Note, Cost: m.does}
	signs := m.signs(r, units)
	if len(signs) == 0 {
		f.Evidence = "no sign of " + m.id
		return f.healthy()
	}
	f.Evidence = strings.Join(slices.Sorted(maps.Keys(signs)), ", ") + " (from the ruleset and systemd)"
	if len(m.lines) > 0 {
		return f.policy(m.lines...)
	}
	return f.advice(m.advice)
}

// signs returns the evidence that the manager works on this host.
func (m manager) signs(r *ruleset, units map[string]unit) map[string]bool {
	signs := map[string]bool{}
	for _, c := range r.chains {
		switch {
		case slices.ContainsFunc(m.chains, func(p string) bool { return strings.HasPrefix(c.name, p) }):
			signs["chains "+c.family+" "+c.table] = true
		case slices.Contains(m.tables, c.table):
			signs["table "+c.family+" "+c.table] = true
		}
	}
	for _, name := range m.units {
		if units[name].active {
			signs["unit "+name+" runs"] = true
		}
	}
	return signs
}

// ownName is the start of the names of Floodwall's objects in netfilter.
const ownName = "floodwall"

// own says in which parts of netfilter Floodwall has rules.
type own struct{ nftables, iptables bool }

func (r *ruleset) ownTables() (o own) {
	for _, c := range r.chains {
		o.nftables = o.nftables || c.backend == nftables && strings.HasPrefix(c.table, ownName)
		o.iptables = o.iptables || strings.HasPrefix(strings.ToLower(c.name), ownName)
	}
	return o
}

// unit is the state of a systemd service.
type unit struct{ active, enabled bool }

// readUnits returns the states of all managers' units, from systemd. Without systemd it returns nil.
func readUnits(ctx context.Context, h *host) map[string]unit {
	args := []string{"show", "--no-pager", "--property=Id,ActiveState,UnitFileState", "nftables.service", "netfilter-persistent.service", "iptables.service"}
	for _, m := range known {
		args = append(args, m.units...)
	}
	out, err := h.tool(ctx, "systemctl", args...)
	if err != nil {
		return nil
	}
	return parseUnits(string(out))
}

// parseUnits parses the properties of units. Empty lines separate the units.
func parseUnits(text string) map[string]unit {
	units := map[string]unit{}
	for block := range strings.SplitSeq(text, "\n\n") {
		values := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			values[key] = value
		}
		units[values["Id"]] = unit{
			active: values["ActiveState"] == "active", enabled: strings.HasPrefix(values["UnitFileState"], "enabled"),
		}
	}
	return units
}

const nftablesConf = "etc/nftables.conf"

var flushRuleset = wording.Regexp(`(?m)^[ \t]*flush[ \t]+ruleset\b`)

// nftablesService warns of a unit that flushes all rules of nftables when it is started, reloaded or stopped. If the unit is neither enabled nor
// active, this happens only if a person starts it, and the finding is a note.
func nftablesService(h *host, units map[string]unit, ours own) Finding {
	f := Finding{ID: "nftables-service", Severity: Note, Evidence: "no `flush ruleset` in /" + nftablesConf + " that a unit would run"}
	text, err := h.read(nftablesConf)
	u := units["nftables.service"]
	if err != nil || !flushRuleset().MatchString(text) || !u.active && !u.enabled && !ours.nftables {
		return f.healthy()
	}
	f.Evidence = fmt.Sprintf("`flush ruleset` in /%s; nftables.service is enabled: %t, active: %t (from systemd)", nftablesConf, u.enabled, u.active)
	f.Cost = "`systemctl restart nftables`, reload and stop wipe every nft table, also Floodwall's (target nftables, and the companion of xdp)"
	if ours.nftables && (u.active || u.enabled) { // Debian installs this file with a disabled unit
		f.Severity = Warning
	}
	return f.command("sed -i 's/^[[:space:]]*flush[[:space:]]\\+ruleset/#&/' /" + nftablesConf).note(
		"and let the file delete and define its own tables only (`table T {}; delete table T; table T { … }`)")
}

// note appends text to the cost of a finding.
func (f Finding) note(words string) Finding {
	f.Cost += "; " + words
	return f
}

// persistentRules warns of a unit that replaces all iptables rules by saved ones.
func persistentRules(h *host, units map[string]unit, ours own) Finding {
	f := Finding{ID: "iptables-restore-service", Severity: Note, Evidence: "no unit restores rules of iptables"}
	var running []string
	for _, name := range []string{"netfilter-persistent.service", "iptables.service"} {
		if u := units[name]; u.active || u.enabled {
			running = append(running, name)
		}
	}
	var files []string
	for _, name := range []string{"etc/iptables/rules.v4", "etc/iptables/rules.v6", "etc/sysconfig/iptables"} {
		if _, err := h.read(name); err == nil {
			files = append(files, "/"+name)
		}
	}
	if len(running) == 0 || len(files) == 0 {
		return f.healthy()
	}
	f.Evidence = fmt.Sprintf("%s restores %s (from systemd)", strings.Join(running, ", "), strings.Join(files, ", "))
	f.Cost = "iptables-restore without -n flushes each table in the file: chains of the target iptables are gone after it; nft tables and XDP stay"
	if ours.iptables {
		f.Severity = Warning
	}
	return f.advice("use the targets xdp or nftables beside it; after it `floodwall repair` puts the chains back, as `floodwall daemon` does by itself")
}

// savedFiles warns of files of saved rules that include Floodwall's rules. Only a policy can restore these correctly.
func savedFiles(h *host) Finding {
	f := Finding{ID: "saved-files", Severity: Warning, Evidence: "no file of saved rules holds some of Floodwall's"}
	files := boot.SavedWithOwn(h.root)
	if files == nil {
		return f.healthy()
	}
	f.Evidence = "rules of Floodwall are in " + strings.Join(files, ", ")
	f.Cost = "when it is restored, a table of nftables decides as an earlier policy did, and iptables-restore refuses a file without the ipsets that it " +
		"names, with all other rules in it"
	return f.command(strings.Replace(boot.LeaveOut, "sed ", "sed -i ", 1) + " " + strings.Join(files, " ")).note(
		"save through the same filter from now on: `iptables-save | " + boot.LeaveOut + "`")
}
