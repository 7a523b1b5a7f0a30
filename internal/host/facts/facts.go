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

// Facts are the properties of this host on which lowering and planning a policy depend. Without protected services only DHCPServers
// and Translations are set.
type Facts struct {
	Known     bool // a host was asked; else nothing is known of one
	Listeners []Listener
	Forwards  bool     // the host forwards IPv4 or IPv6
	Memory    uint64   // in bytes
	MTU       int      // the smallest of the devices
	Devices   []Device // that the policy is for
	TCP       TCP
	Kernel    Kernel
	Servers   map[string]Servers // of the services behind this host, by the service's name

	// Translations are the rules of netfilter that send packets on to other destinations (DNAT).
	Translations []netfilter.Translation
	DHCPServers  []netip.Addr // that this host knows, gateways among them; asked where the policy passes their answers as essential
}

// Device is a device that is to be filtered.
type Device struct {
	Name     string
	GROOff   bool  // it has GRO, which is switched off
	Untagged error // why replies from XDP in native mode would leave without their VLAN tag, nil when they would not
}

// Kernel says why programs of this kernel cannot do something, nil where they can.
type Kernel struct {
	Reqsk           error // give the kernel a connection that a cookie has proved; asked where a service is on this host
	RawCookies      error // make the kernel's own cookies; asked where a service is behind this host
	Egress          error // see what leaves; asked where replies pass
	ConntrackLookup error // likewise: look up connections of conntrack
}

// Discover finds the facts for a policy on these devices; nil means the devices of the policy.
func Discover(ctx context.Context, p *policy.Policy, devices []string) (f *Facts, err error) {
	f = &Facts{}
	if p.Default == policy.Drop {
		f.DHCPServers, _ = System.DHCPServers() // those that cannot be listed share the limit of all others
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
	f.Known, f.Forwards, f.TCP = true, forwards(), ReadTCP()
	if err := f.askDevices(devices); err != nil {
		return nil, err
	}
	if f.Memory, err = memory(); err != nil {
		return nil, err
	}
	return f, f.askServices(ctx, p)
}

func protected(s policy.Service) bool { return s.Syn != nil }

// askDevices asks each device.
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

// askServices asks what depends on where the protected services live.
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

// memory is how many bytes of memory this host has.
func memory() (uint64, error) {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return 0, fmt.Errorf("memory of this host: %w", err)
	}
	return uint64(host.Totalram) * uint64(host.Unit), nil
}
