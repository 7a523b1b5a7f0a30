// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Units are the systemd units of an instance.
type Units struct {
	Root     string   // the root directory of the host's files; "": this host. For another root, systemd is not called
	Binary   string   // path of the program floodwall
	State    string   // the value of --state
	BPFFS    string   // the value of --bpffs
	Devices  []string // the devices that the policy filters
	Daemon   bool     // whether there is also a unit for the daemon
	Legacy   bool     // whether iptables is iptables-legacy
	Group    string   // the group that may read from the daemon; "" for none
	Packaged bool     // for Write: the units belong to a package
}

// The names of the units.
const (
	filterUnit = "floodwall-boot.service"
	deviceUnit = "floodwall-device.service"
	DaemonUnit = "floodwall.service" // runs `floodwall daemon`
)

// Restore returns the command that loads the saved policy. Hosts without systemd also use this command.
func (u Units) Restore() string { return u.command("apply", "--boot-restore") }

func (u Units) command(words ...string) string {
	words = append([]string{u.Binary}, words...)
	words = append(words, "--state="+u.State, "--bpffs="+u.BPFFS)
	for i, w := range words {
		words[i] = quoteWord(w)
	}
	return strings.Join(words, " ")
}

// firewalls are services that may flush all rules when they start. Our units start after them.
var firewalls = []string{
	"nftables", "iptables", "ip6tables", "netfilter-persistent", "ipset", "ufw", "firewalld", "shorewall", "shorewall6",
}

// filter returns the text of floodwall-boot.service. The unit runs before the network is set up, and again when a device appears that did not exist
// before.
//
// The unit has no ExecStop: a policy stays in the kernel when the unit is stopped. A restart replaces the running policy by the saved one, like an
// apply. `floodwall unload` removes the policy. Without DefaultDependencies the unit is not stopped at shutdown. It has a time limit because the
// network waits for the unit, and a hanging start must not lock anyone out. The unit waits for hardware devices. It does not wait for devices that
// the network's configuration creates, because that configuration waits for this unit. It waits for systemd-tmpfiles-setup.service, which empties
// /tmp: there systemd makes the directory for PrivateDevices, and a unit whose directory is removed fails with status 226/NAMESPACE.
func (u Units) filter() string {
	after := []string{"local-fs.target", "systemd-tmpfiles-setup.service", "systemd-modules-load.service", "systemd-sysctl.service"}
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
` + u.sandbox("yes") + `
[Install]
WantedBy=` + strings.Join(append([]string{"sysinit.target"}, u.deviceUnits()...), " ") + "\n"
}

// device returns the text of floodwall-device.service, which puts the policy on a device that returns. Each time a device appears, systemd starts the
// units that the device's unit wants, unless they are active (unit_notify in systemd's src/core/unit.c). floodwall-boot.service stays active, so this
// unit must not stay active. If floodwall-boot.service has failed, because no device appeared in time, nothing is loaded. Then this unit applies the
// saved policy, whichever of the two units systemd starts first.
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
` + u.sandbox("yes")
	if units := u.deviceUnits(); len(units) > 0 {
		text += "\n[Install]\nWantedBy=" + strings.Join(units, " ") + "\n"
	}
	return text
}

// saved returns the path of the link that exists if a policy is saved. Specifiers in the path are escaped.
func (u Units) saved() string { return percent(filepath.Join(u.State, "boot", current)) }

// deviceUnits returns the names of the systemd units of the devices. It leaves out lo, which always exists and has no unit.
func (u Units) deviceUnits() (list []string) {
	for _, d := range u.Devices {
		if d != "lo" {
			list = append(list, deviceOf(d))
		}
	}
	return list
}

// awaitedUnits returns the names of the systemd units of the devices for which floodwall-boot.service waits.
func (u Units) awaitedUnits() (list []string) {
	for _, d := range u.Devices {
		if u.awaited(d) {
			list = append(list, deviceOf(d))
		}
	}
	return list
}

// awaited reports whether the unit waits for a device: the device is hardware, and udev reports devices to systemd. In a container without udev no
// device unit ever starts.
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

// daemon returns the text of floodwall.service. Traffic does not depend on the daemon. The memory of a policy's maps is charged to the unit that
// loads them, so the unit's memory limit allows most of the host's memory. The daemon runs as a member of the group, so that it can give its socket
// to the group without CAP_CHOWN. The thread that looks for floods takes a real-time priority, which LimitRTPRIO and RestrictRealtime=no allow without
// CAP_SYS_NICE: threads of the kernel that receive a flood may have such a priority, and take all CPUs. The daemon limits itself how long that thread
// may run (internal/daemon/flood.go). If the kernel refuses the priority, LimitNICE allows the highest of the others.
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
LimitNICE=-20
# The thread that looks for floods must run before the kernel's threads that receive one.
LimitRTPRIO=51
` + u.sandbox("no") + u.stateDirectory() + u.group() + u.profile() + `
[Install]
WantedBy=multi-user.target
`
}

// stateDirectory returns the setting that makes the state directory below /var/lib before the daemon starts, which cannot make it: the file system is
// read-only but for paths that exist. Otherwise only the first apply would make it.
func (u Units) stateDirectory() string {
	name, ok := strings.CutPrefix(u.State, "/var/lib/")
	if !ok {
		return ""
	}
	return "StateDirectory=" + quoteWord(name) + "\n"
}

func (u Units) group() string {
	if u.Group == "" {
		return ""
	}
	return "SupplementaryGroups=" + u.Group + "\nSystemCallFilter=@chown\n"
}

// profile returns the setting that confines the daemon by the package's AppArmor profile, which is for the default directories. The daemon starts
// without it where AppArmor is missing or the profile is not loaded.
func (u Units) profile() string {
	if !u.Packaged {
		return ""
	}
	return "AppArmorProfile=-floodwall-daemon\n"
}

// sandbox returns the part of [Service] that all units share, except whether threads may have a real-time priority. CAP_BPF, CAP_NET_ADMIN and
// CAP_PERFMON allow loading programs and changing the network. The verifier requires CAP_PERFMON for a program that copies parts of pointers, as
// our compiled C does. The units may write the state, the BPF file system, and the settings net.netfilter.nf_conntrack_tcp_loose and net.ipv4,
// which protections change. iptables-legacy also needs a raw socket, and creates its lock in /run.
//
// These units do not use ProtectKernelTunables. With it /sys/fs/bpf was read-only, also when ReadWritePaths or BindPaths named it, and the host
// booted without a filter (TestBoot of e2e/guest). ReadOnlyPaths lists the tunables that do not concern the network.
func (u Units) sandbox(restrictRealtime string) string {
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
RestrictRealtime=` + restrictRealtime + `
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallFilter=bpf
SystemCallErrorNumber=EPERM
UMask=0077
`
}

// deviceOf returns the name of the systemd unit of a network device. systemd.unit(5) defines the escapes.
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

// quoteWord quotes a word of a command line according to systemd.service(5).
func quoteWord(word string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `$$`).Replace(percent(word))
	if escaped == word && !strings.ContainsAny(word, " \t'") {
		return word
	}
	return `"` + escaped + `"`
}

// percent escapes % so that it does not start a specifier.
func percent(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// pathWord quotes a path for a list of paths in a unit. The leading "-" permits a path that does not exist.
func pathWord(path string) string {
	word := quoteWord("-" + path)
	return strings.ReplaceAll(word, "$$", "$") // only command lines expand variables
}
