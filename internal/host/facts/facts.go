// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/policy"
)

// Facts are the properties of this host on which compiling and planning a policy depend. If the policy has no protected services, only DHCPServers,
// Translations and Kernel.Egress are set.
type Facts struct {
	Known     bool // whether the facts were read from a host; false: the host is unknown
	Listeners []Listener
	Forwards  bool     // whether the host forwards IPv4 or IPv6
	Memory    uint64   // size of the memory in bytes
	MTU       int      // the smallest MTU of the devices
	Devices   []Device // the devices that the policy filters
	TCP       TCP
	Kernel    Kernel
	Servers   map[string]Servers // results for services behind this host, by the service's name

	// Translations are the rules of netfilter that redirect packets to other destinations (DNAT).
	Translations []netfilter.Translation
	DHCPServers  []netip.Addr // known DHCP servers, including gateways; only if the policy passes their answers as essential
}

// Device is a device that the policy filters.
type Device struct {
	Name     string
	GROOff   bool  // whether it has GRO, and GRO is off
	Untagged error // why replies from XDP in native mode would lack their VLAN tag; nil if they would have it
}

// Kernel says which functions this kernel does not offer to programs, and why. nil means that the kernel offers the function.
type Kernel struct {
	Reqsk           error // passing a connection that a cookie has proved to the kernel; only checked for a service on this host
	RawCookies      error // making the kernel's own cookies; only checked for a service behind this host
	Egress          error // seeing packets that leave; only checked if replies pass
	ConntrackLookup error // looking up connections in conntrack; checked with RawCookies
}

// Discover finds the facts for a policy on the given devices. nil means the devices of the policy.
func Discover(ctx context.Context, p *policy.Policy, devices []string) (f *Facts, err error) {
	f = &Facts{}
	if p.Default == policy.Drop {
		f.DHCPServers, _ = System.DHCPServers() // answers of DHCP servers that cannot be listed share one limit
	}
	if p.Replies {
		f.Kernel.Egress = features.Egress()
	}
	if f.Translations, err = netfilter.Translations(ctx); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(p.Services, protected) {
		return f, nil
	}
	if devices == nil {
		devices = p.DeviceNames()
	}
	if f.Listeners, err = listeners(); err != nil {
		return nil, err
	}
	f.Known, f.Forwards, f.TCP = true, Forwards(), ReadTCP()
	if err := f.askDevices(devices); err != nil {
		return nil, err
	}
	if f.Memory, err = memory(); err != nil {
		return nil, err
	}
	return f, f.askServices(ctx, p)
}

func protected(s policy.Service) bool { return s.Syn != nil }

// askDevices reads the properties of each device.
func (f *Facts) askDevices(names []string) error {
	eth, err := features.Open()
	if err != nil {
		return err
	}
	defer eth.Close()
	f.MTU = 65535
	for _, name := range names {
		if err := datapath.DeviceExists(name); err != nil {
			return err
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
		f.MTU = min(f.MTU, link.Attrs().MTU)
		features, err := eth.Features(name)
		gro, has := features["rx-gro"]
		f.Devices = append(f.Devices, Device{Name: name, GROOff: err == nil && has && !gro.On, Untagged: RepliesUntagged(name)})
	}
	return nil
}

// askServices finds the facts that depend on whether a protected service is on this host or behind it.
func (f *Facts) askServices(ctx context.Context, p *policy.Policy) (err error) {
	f.Servers = map[string]Servers{}
	for i := range p.Services {
		s := &p.Services[i]
		if !protected(*s) {
			continue
		}
		mode, _ := f.Mode(s)
		if mode == policy.SynRouter {
			f.Kernel.RawCookies, f.Kernel.ConntrackLookup = features.RawCookies(), features.ConntrackLookup()
			if f.Servers[s.Name], err = askServers(ctx, ports(s), s.Syn.Backends); err != nil {
				return err
			}
		} else {
			f.Kernel.Reqsk = features.Reqsk()
		}
	}
	return nil
}

// memory returns the size of this host's memory in bytes.
func memory() (uint64, error) {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return 0, fmt.Errorf("memory of this host: %w", err)
	}
	return uint64(host.Totalram) * uint64(host.Unit), nil
}
