// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// xdpSupport returns findings for each device on whether Floodwall can run in its driver, and if not, why.
func xdpSupport(_ context.Context, h *host) []Finding {
	return eachDevice(h, "xdp-native", func(d *device) []Finding {
		return []Finding{d.native(), d.refusals(), d.occupied()}
	})
}

// runsNative reports whether the driver supports native XDP, or may support it.
func (d *device) runsNative() bool {
	return (d.xdpErr != nil || d.xdp&xdpBasic != 0) && !d.joined()
}

// joined reports whether the hypervisor merges packets (hardware GRO) and the merging cannot be switched off. The virtio driver cannot run XDP then.
func (d *device) joined() bool {
	gro := d.features["rx-gro-hw"]
	return d.driver == "virtio_net" && gro.On && gro.Fixed
}

// native returns a finding on whether the driver runs XDP programs.
func (d *device) native() Finding {
	f := Finding{
		ID: "xdp-native", Severity: Note, // it cannot be changed on this host
		Evidence: fmt.Sprintf("%s has no native XDP (from the kernel's netdev family)", d.kinds()),
		Cost:     "a program runs after the kernel has made a packet of the frame (at tc, or generic XDP): a dropped packet costs several times as much",
	}
	switch {
	case d.xdpErr != nil:
		f.Cost = "whether Floodwall runs in the driver shows when it is applied"
		f.Evidence = fmt.Sprintf("%s: %v", d.kinds(), errNoXDPFeatures)
		return f.command("floodwall apply --dry-run --mode native --device " + wording.Shell(d.name) + " policy.yaml")
	case d.xdp&xdpBasic != 0:
		f.Evidence = d.kinds() + " has native XDP" + d.extras() + " (from the kernel's netdev family)"
		cost, remedy := control.NativeCost(d.kind, d.name)
		if cost == "" {
			return f.healthy()
		}
		f.Cost = cost
		return f.advice(remedy)
	case len(d.below) > 0:
		f.Severity = Warning
		return f.advice("filter on the devices below it: `devices: [" + strings.Join(d.below, ", ") + "]`")
	}
	return f.advice("a device whose driver has XDP; until then mode tc, which `--mode auto` chooses")
}

// kinds describes the driver, or the kind of a virtual device.
func (d *device) kinds() string {
	if d.driver != "" {
		return "driver " + d.driver
	}
	return "a device of kind " + d.kind
}

func (d *device) extras() string {
	words := ""
	if d.xdp&xdpRedirect != 0 {
		words += ", redirect"
	}
	if d.xdp&xdpScattered != 0 {
		words += ", frames in several buffers"
	}
	return words
}

// refusals returns a finding on whether the driver would refuse a program because of the device's present settings, as far as that is known in
// advance.
func (d *device) refusals() Finding {
	f := Finding{ID: "xdp-setup", Severity: Warning, Cost: "the driver refuses an XDP program as the device is set up"}
	name := wording.Shell(d.name)
	lro := d.features["rx-lro"]
	switch c := d.channels; {
	case lro.On && !lro.Fixed:
		f.Evidence = "large receive offload is on (rx-lro, from ethtool)"
		return f.command("ethtool -K " + name + " lro off")
	case d.joined():
		f.Severity = Note // it cannot be changed on this host
		f.Evidence = "the hypervisor joins packets, and the device cannot be told to stop (rx-gro-hw is on and fixed, from ethtool)"
		return f.advice("have the hypervisor offer VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, or switch its guest_tso4, guest_tso6 and guest_ufo off")
	case d.driver == "ena" && c != nil && 2*c.Combined > c.MaxCombined:
		f.Evidence = fmt.Sprintf("%d queues of %d are in use, and ena wants as many again for XDP (from ethtool)", c.Combined, c.MaxCombined)
		f.Numbers = map[string]uint64{"queues": uint64(c.Combined), "max": uint64(c.MaxCombined)}
		return f.command(fmt.Sprintf("ethtool -L %s combined %d", name, max(1, c.MaxCombined/2)))
	}
	f.Evidence = "neither large receive offload nor the number of queues is in the way (from ethtool)"
	return f.healthy()
}

// frameSize returns findings on whether frames are too large for XDP.
func frameSize(_ context.Context, h *host) []Finding {
	return eachDevice(h, "xdp-mtu", func(d *device) []Finding { return []Finding{d.frames()} })
}

func (d *device) frames() Finding {
	f := Finding{
		ID: "xdp-mtu", Severity: Warning,
		Evidence: fmt.Sprintf("the MTU is %d, and %d fits into one buffer (from the kernel's list of devices)", d.mtu, datapath.SingleBufferMTU),
		Numbers:  map[string]uint64{"mtu": uint64(d.mtu), "single_buffer": datapath.SingleBufferMTU},
		Cost:     "the driver refuses native XDP, since it does not take frames in several buffers",
	}
	switch {
	case d.mtu <= datapath.SingleBufferMTU || d.xdpErr == nil && d.xdp&xdpBasic == 0:
		return f.healthy()
	case d.xdpErr == nil && d.xdp&xdpScattered != 0:
		f.Severity = Note
		f.Cost = "frames come in several buffers: Floodwall reads them, most other XDP programs are refused"
	}
	return f.command("ip link set dev " + wording.Shell(d.name) + " mtu 1500")
}

// occupied returns a finding on whether another tool's XDP program is attached.
func (d *device) occupied() Finding {
	f := Finding{ID: "xdp-occupied", Severity: Warning, Evidence: "no XDP program of others is attached (from the kernel's list of devices)"}
	if d.program == nil {
		return f.healthy()
	}
	id := ebpf.ProgramID(d.program.ProgId)
	name, err := datapath.ProgramName(id)
	f.Numbers = map[string]uint64{"program": uint64(id)}
	f.Cost = "a device has one place for XDP: Floodwall runs behind it, at tc, where a dropped packet costs several times as much; stop the owner first, or it comes back"
	switch {
	case err != nil:
		f.Evidence = fmt.Sprintf("an XDP program is attached, id %d; whose it is cannot be told: %v", id, err)
		f.Severity = Note
		return f.command("sudo floodwall doctor")
	case strings.HasPrefix(name, image.Program): // also during a trial
		f.Evidence = "Floodwall's XDP program is attached"
		return f.healthy()
	}
	f.Evidence = fmt.Sprintf("an XDP program of %s is attached: id %d, name %q (from the kernel's list of devices)", owner(name), id, name)
	if l := datapath.LinkOf(d.index, id); l != 0 {
		return f.command(fmt.Sprintf("bpftool link detach id %d", l))
	}
	return f.command("ip link set dev " + wording.Shell(d.name) + " " + datapath.ModeWord(d.program.AttachMode) + " off")
}
