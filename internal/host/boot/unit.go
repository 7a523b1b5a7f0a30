package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Units are the systemd units of an instance.
type Units struct {
	Root     string   // where the host's files are; "" for this host. With another, systemd is told nothing
	Binary   string   // path of floodwall
	State    string   // --state
	BPFFS    string   // --bpffs
	Devices  []string // that the policy filters
	Daemon   bool     // also the daemon has a unit
	Legacy   bool     // iptables is the kind that is not made of nftables
	Group    string   // that may read from the daemon, "" for none
	Packaged bool     // the units are those of a package, for Write
}

// The units.
const (
	filterUnit = "floodwall-boot.service"
	deviceUnit = "floodwall-device.service"
	DaemonUnit = "floodwall.service" // runs `floodwall daemon`
)

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

// filter is the text of floodwall-boot.service. It runs before the network is set up, and once more when a device appears
// that was not there yet.
//
// The unit has no ExecStop: a policy stays in the kernel when the unit is stopped, and a restart puts the saved policy in
// the place of the one that runs, as every apply does. `floodwall unload` removes it. Without DefaultDependencies the unit
// is not stopped at shutdown either. The time limit is there because the network waits for the unit: a hanging start must
// not lock anyone out. Devices of the hardware are waited for; those that the network's configuration makes are not, as
// that waits for this unit.
func (u Units) filter() string {
	after := []string{"local-fs.target", "systemd-modules-load.service", "systemd-sysctl.service"}
	for _, f := range firewalls {
		after = append(after, f+".service")
	}
	after, wants := append(after, u.awaitedUnits()...), append([]string{"network-pre.target"}, u.awaitedUnits()...)
	return u.header() + `
[Unit]
Description=Floodwall: the policy that was confirmed last
DefaultDependencies=no
Wants=` + strings.Join(wants, " ") + `
After=` + strings.Join(after, " ") + `
Before=network-pre.target
ConditionPathIsSymbolicLink=` + u.saved() + `
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=2min
ExecStart=` + u.Restore() + `
ExecReload=` + u.Restore() + `
` + u.sandbox() + `
[Install]
WantedBy=` + strings.Join(append([]string{"sysinit.target"}, u.deviceUnits()...), " ") + "\n"
}

// device is the text of floodwall-device.service, which puts the policy on a device that returns. systemd starts what a
// device unit wants each time that the device appears, unless it is active (unit_notify in systemd's src/core/unit.c).
// floodwall-boot.service stays active, so this unit does not. When floodwall-boot.service has failed, as no device was there in time, nothing is
// loaded: then this unit applies the saved policy, whichever of the two systemd starts first.
func (u Units) device() string {
	text := u.header() + `
[Unit]
Description=Floodwall: the policy on a device that returns
DefaultDependencies=no
After=` + filterUnit + `
ConditionPathIsSymbolicLink=` + u.saved() + `
StartLimitIntervalSec=0

[Service]
Type=oneshot
TimeoutStartSec=2min
ExecStart=` + u.exec(deviceUnit) + `
` + u.sandbox()
	if units := u.deviceUnits(); len(units) > 0 {
		text += "\n[Install]\nWantedBy=" + strings.Join(units, " ") + "\n"
	}
	return text
}

// saved is the link that is there when a policy is to come back, with specifiers escaped.
func (u Units) saved() string { return percent(filepath.Join(u.State, "boot", current)) }

// deviceUnits are systemd's units of the devices. lo is always there, and unknown to systemd.
func (u Units) deviceUnits() (list []string) {
	for _, d := range u.Devices {
		if d != "lo" {
			list = append(list, deviceOf(d))
		}
	}
	return list
}

// awaitedUnits are systemd's units of the devices that are waited for.
func (u Units) awaitedUnits() (list []string) {
	for _, d := range u.Devices {
		if u.awaited(d) {
			list = append(list, deviceOf(d))
		}
	}
	return list
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

// daemon is the text of floodwall.service. Traffic does not depend on it. The maps of a policy are charged to the
// unit that loads them, so its limit of memory leaves most of the host's to them. A member of the group may give its socket to
// the group without CAP_CHOWN.
func (u Units) daemon() string {
	return u.header() + `
[Unit]
Description=Floodwall: the daemon
After=` + filterUnit + ` network.target
StartLimitIntervalSec=0

[Service]
Type=simple
ExecStart=` + u.exec(DaemonUnit) + `
Restart=always
RestartSec=1s
RuntimeDirectory=floodwall
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=yes
MemoryMax=75%
` + u.sandbox() + u.group() + `
[Install]
WantedBy=multi-user.target
`
}

func (u Units) group() string {
	if u.Group == "" {
		return ""
	}
	return "SupplementaryGroups=" + u.Group + "\nSystemCallFilter=@chown\n"
}

// sandbox is the part of [Service] that all units share. CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON load programs and change
// the network; the verifier asks for CAP_PERFMON of a program that copies parts of pointers, as our compiled C does.
// Writable are the state, the BPF file system, and net.netfilter.nf_conntrack_tcp_loose with net.ipv4, which protections
// set. The legacy iptables also needs a raw socket, and makes its lock in /run.
//
// ProtectKernelTunables is not for these units: with it /sys/fs/bpf was read-only, whether ReadWritePaths or BindPaths named
// it, and the host booted without a filter (TestBoot of test/guest). ReadOnlyPaths has the tunables that have
// nothing to do with the network.
func (u Units) sandbox() string {
	capabilities, writable := "CAP_BPF CAP_NET_ADMIN CAP_PERFMON", pathWord(u.State)+" "+pathWord(filepath.Dir(u.BPFFS))+" -/proc/sys/net"
	if u.Legacy {
		capabilities, writable = "CAP_BPF CAP_NET_ADMIN CAP_NET_RAW CAP_PERFMON", writable+" /run"
	}
	return `CapabilityBoundingSet=` + capabilities + `
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=` + writable + `
ProtectHome=read-only
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ReadOnlyPaths=-/proc/sys/fs -/proc/sys/kernel -/proc/sys/vm -/proc/sysrq-trigger -/sys/firmware -/sys/kernel -/sys/module -/sys/power
PrivateDevices=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallFilter=bpf
SystemCallErrorNumber=EPERM
UMask=0077
`
}

// deviceOf is the unit that systemd has for a network device; systemd.unit(5) defines the escapes.
func deviceOf(device string) string {
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
