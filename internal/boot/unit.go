package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Units are the systemd units of an instance.
type Units struct {
	Root    string   // where the host's files are; "" for this host. With another, systemd is told nothing
	Binary  string   // path of floodwall
	State   string   // --state
	BPFFS   string   // --bpffs
	Devices []string // that the policy filters
	Daemon  bool     // also the daemon has a unit
}

// The units.
const (
	filterUnit = "floodwall.service"
	daemonUnit = "floodwall-daemon.service"
)

// mark begins the units that this package writes. Others are the operator's or a distribution's.
const mark = "# Written by `floodwall apply --boot`, and again when the policy names other devices.\n"

const header = mark + "# `systemctl edit` makes changes that stay.\n"

// Restore is the command that brings back the saved policy. It is for who has no systemd, too.
func (u Units) Restore() string { return u.command("apply", "--boot-restore") }

func (u Units) command(words ...string) string {
	words = append([]string{u.Binary}, words...)
	words = append(words, "--state="+u.State, "--bpffs="+u.BPFFS)
	for i, w := range words {
		words[i] = quoteWord(w)
	}
	return strings.Join(words, " ")
}

// firewalls are services that may flush all rules when they start; ours come after.
var firewalls = []string{
	"nftables", "iptables", "ip6tables", "netfilter-persistent", "ipset", "ufw", "firewalld", "shorewall", "shorewall6",
}

// filter is the text of floodwall.service. It runs before the network is set up, and once more when a device appears
// that was not there yet.
//
// Without DefaultDependencies it is not stopped at shutdown, so the filter stands until the machine is off. The time
// limit is there because the network waits for the unit: a hanging start must not lock anyone out. Devices of the
// hardware are waited for; those that the network's configuration makes are not, as that waits for this unit.
func (u Units) filter() string {
	after := []string{"local-fs.target", "systemd-modules-load.service", "systemd-sysctl.service"}
	for _, f := range firewalls {
		after = append(after, f+".service")
	}
	wants, wantedBy := []string{"network-pre.target"}, []string{"sysinit.target"}
	for _, d := range u.Devices {
		if d == "lo" {
			continue // always there, and unknown to systemd
		}
		if u.awaited(d) {
			after, wants = append(after, deviceUnit(d)), append(wants, deviceUnit(d))
		}
		wantedBy = append(wantedBy, deviceUnit(d))
	}
	return header + `
[Unit]
Description=Floodwall: the policy that was confirmed last
DefaultDependencies=no
Wants=` + strings.Join(wants, " ") + `
After=` + strings.Join(after, " ") + `
Before=network-pre.target
ConditionPathIsSymbolicLink=` + percent(filepath.Join(u.State, "boot", current)) + `
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=2min
ExecStart=` + u.Restore() + `
ExecReload=` + u.Restore() + `
ExecStop=-` + u.command("unload", "--keep-boot") + `

[Install]
WantedBy=` + strings.Join(wantedBy, " ") + "\n"
}

// awaited reports whether a device is one of the hardware, and there is somebody to tell systemd of it: in a container
// without udev no device unit ever starts.
func (u Units) awaited(device string) bool {
	if _, err := os.Stat(u.inRoot("/run/udev/control")); err != nil {
		return false
	}
	_, err := os.Stat(u.inRoot("/sys/class/net", device, "device"))
	return err == nil
}

func (u Units) inRoot(elem ...string) string {
	return filepath.Join(append([]string{"/", u.Root}, elem...)...)
}

// daemon is the text of floodwall-daemon.service. Traffic does not depend on it, so it may be locked up tightly. Of the
// capabilities, CAP_PERFMON is what the verifier asks for of a program that copies parts of pointers, as our compiled C
// does, and CAP_NET_RAW is for the legacy iptables.
func (u Units) daemon() string {
	return header + `
[Unit]
Description=Floodwall: the daemon
After=` + filterUnit + ` network.target
StartLimitIntervalSec=0

[Service]
Type=simple
ExecStart=` + u.command("daemon") + `
Restart=always
RestartSec=1s
CapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=` + pathWord(u.State) + " " + pathWord(filepath.Dir(u.BPFFS)) + ` -/run/xtables.lock
RuntimeDirectory=floodwall
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
ProtectHome=read-only
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
PrivateTmp=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
`
}

// deviceUnit is the unit that systemd has for a network device; systemd.unit(5) defines the escapes.
func deviceUnit(device string) string {
	var b strings.Builder
	b.WriteString("sys-subsystem-net-devices-")
	for _, c := range []byte(device) {
		switch {
		case c == '_', c == ':', c == '.', '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String() + ".device"
}

// quoteWord is a word of a command line, as systemd.service(5) quotes it.
func quoteWord(word string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `$$`).Replace(percent(word))
	if escaped == word && !strings.ContainsAny(word, " \t'") {
		return word
	}
	return `"` + escaped + `"`
}

// percent keeps what is no specifier from being one.
func percent(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// pathWord is one of several paths; one that is absent is no mistake.
func pathWord(path string) string {
	word := quoteWord("-" + path)
	return strings.ReplaceAll(word, "$$", "$") // only command lines have variables
}
