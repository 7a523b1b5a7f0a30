// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
)

// pageSize is the size of the server's page in bytes.
const pageSize = 10 << 10

// demoWire connects a device of the server to another host.
type demoWire struct{ server, outside *lab.Device }

// scene is a web server with two uplinks: one to the attackers and one to the clients. On a common veth, requests would be lost whenever the flood
// fills the 256 places of its queue (kernel drivers/net/veth.c, VETH_RING_SIZE). This loss would happen before any firewall. Real network cards avoid
// it, because they have different queues for different flows.
type scene struct {
	lab                *lab.Lab
	flood, clients     demoWire
	download           demoWire   // a plain veth, see downloads
	sourceCPU, hostCPU int        // sourceCPU is the CPU of the attackers and clients, hostCPU is that of the server
	freeCPU            func()     // lets this process use sourceCPU again
	mounts             []*os.File // file systems for files, and for BPF
	script             script
	instance           control.Instance
}

// newScene builds the scene in a lab.
func newScene(l *lab.Lab, o Options) (*scene, error) {
	s := &scene{lab: l}
	if err := s.build(o); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *scene) build(o Options) (err error) {
	if s.sourceCPU, s.hostCPU, err = cpuPair(); err != nil {
		return err
	}
	if s.freeCPU, err = leaveCPU(s.sourceCPU); err != nil {
		return err
	}
	if err := s.mount(o); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	page := bytes.Repeat([]byte("Floodwall\n"), pageSize/10+1)[:pageSize]
	if _, err = s.lab.NewServerProcess(s.host(), netip.AddrPortFrom(serverAddr, webPort), page, s.hostCPU, lab.Urgent); err != nil {
		return err
	}
	return s.connectDownload()
}

// host returns the server's host.
func (s *scene) host() *lab.Host { return s.flood.server.Host }

// mount mounts a file system for the files, and one for Floodwall's state.
func (s *scene) mount(o Options) (err error) {
	for _, kind := range []string{"tmpfs", "bpf"} {
		root, err := anonymousMount(kind)
		if err != nil {
			return err
		}
		s.mounts = append(s.mounts, root)
	}
	s.instance.Dir = filepath.Join(s.mounts[1].Name(), "floodwall")
	s.script, err = writeScript(s.mounts[0].Name(), o)
	return err
}

// connect makes the hosts and connects them.
func (s *scene) connect() (err error) {
	web, err := s.lab.Host("server")
	if err != nil {
		return err
	}
	if s.flood, err = s.uplink(web, floodDevice, serverAddr, floodGateway, false); err != nil {
		return err
	}
	// The server's answers to the flood are dropped at once, so that they cost the attacker's CPU little.
	if _, err := s.lab.NewSink(s.flood.outside, lab.DropAll); err != nil {
		return err
	}
	if s.clients, err = s.uplink(web, clientsDevice, clientsGateway.Prev(), clientsGateway, true); err != nil {
		return err
	}
	if err := s.clients.outside.Host.Route(netip.PrefixFrom(serverAddr, 32), clientsGateway.Prev(), s.clients.outside); err != nil {
		return err
	}
	return web.Route(netip.MustParsePrefix("0.0.0.0/0"), floodGateway, s.flood.server)
}

// uplink adds a device to the server, and connects it to a new host with the name of the device. The server's receive threads have priority over all
// processes on their CPU, like a network card's interrupts. The clients' link has priority over the flood's link. Interrupts would serve both links
// in turn.
func (s *scene) uplink(web *lab.Host, device string, addr, gateway netip.Addr, first bool) (w demoWire, err error) {
	outside, err := s.lab.Host(device)
	if err != nil {
		return w, err
	}
	w.server, w.outside, err = s.lab.Connect(web, outside, lab.LinkOptions{
		A: lab.EndOptions{
			Name: device, Addrs: []netip.Prefix{netip.PrefixFrom(addr, 24)}, CPU: lab.OnCPU(s.hostCPU),
			Urgent: true, First: first, Queue: true,
		},
		B: lab.EndOptions{
			Name: "server", Addrs: []netip.Prefix{netip.PrefixFrom(gateway, 24)}, CPU: lab.OnCPU(s.sourceCPU),
			Urgent: true, First: first, Queue: true,
		},
	})
	return w, err
}

// apply applies the policy on the server, as `floodwall apply policy.yaml` does. It returns the time that this took.
func (s *scene) apply(ctx context.Context) (took time.Duration, err error) {
	err = urgently(func() error {
		start := time.Now()
		defer func() { took = time.Since(start) }()
		return s.host().Do(func() error {
			p, err := policy.Read(s.script.file)
			if err != nil {
				return err
			}
			_, err = s.instance.Apply(ctx, p, control.ApplyOptions{})
			return err
		})
	})
	return took, err
}

func (s *scene) unload(ctx context.Context) error {
	return s.host().Do(func() error { return s.instance.Unload(ctx) })
}

func (s *scene) status() (status *control.Status, err error) {
	err = s.host().Do(func() (err error) {
		status, err = s.instance.Status(context.Background())
		return err
	})
	return status, err
}

// policy reads the policy.
func (s *scene) policy() (p *policy.Policy, err error) {
	err = s.host().Do(func() (err error) {
		p, err = policy.Read(s.script.file)
		return err
	})
	return p, err
}

// close unmounts the file systems. This also unloads everything of Floodwall that is still loaded.
func (s *scene) close() error {
	var errs []error
	if s.freeCPU != nil {
		s.freeCPU()
	}
	for _, m := range s.mounts {
		errs = append(errs, m.Close())
	}
	s.mounts = nil
	return errors.Join(errs...)
}
