package demo

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// pageSize is the length of the page that the server serves, in octets.
const pageSize = 10 << 10

// scene is a web server and the Internet, joined by one link that clients and attackers share.
type scene struct {
	lab                *lab.Lab
	server, internet   *lab.Device // the ends of the link
	sourceCPU, hostCPU int         // of the flood, and of what arrives at the server
	freeCPU            func()      // lets this process use the flood's CPU again
	mounts             []*os.File
	script             script
	instance           control.Instance
}

// newScene builds the scene in a lab.
func newScene(l *lab.Lab, list string) (*scene, error) {
	s := &scene{lab: l}
	if err := s.build(list); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *scene) build(list string) (err error) {
	if s.sourceCPU, s.hostCPU, err = cpuPair(); err != nil {
		return err
	}
	if s.freeCPU, err = leaveCPU(s.sourceCPU); err != nil {
		return err
	}
	if err := s.mount(list); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	page := bytes.Repeat([]byte("Floodwall\n"), pageSize/10+1)[:pageSize]
	_, err = s.lab.NewServer(s.server.Host, netip.AddrPortFrom(serverAddr, webPort), page)
	return err
}

// mount makes places for the files and for the state of Floodwall.
func (s *scene) mount(list string) (err error) {
	for _, kind := range []string{"tmpfs", "bpf"} {
		root, err := anonymousMount(kind)
		if err != nil {
			return err
		}
		s.mounts = append(s.mounts, root)
	}
	s.instance.Dir = filepath.Join(s.mounts[1].Name(), "floodwall")
	s.script, err = writeScript(s.mounts[0].Name(), list)
	return err
}

// connect joins the hosts. The server's receive thread has precedence on its CPU, as a network card's interrupts have.
func (s *scene) connect() error {
	web, err := s.lab.Host("server")
	if err != nil {
		return err
	}
	internet, err := s.lab.Host("internet")
	if err != nil {
		return err
	}
	s.server, s.internet, err = s.lab.Connect(web, internet, lab.LinkOptions{
		A: lab.EndOptions{
			Name: serverDevice, Addrs: []netip.Prefix{netip.PrefixFrom(serverAddr, 24)}, CPU: lab.OnCPU(s.hostCPU), Urgent: true,
		},
		B: lab.EndOptions{Name: "server", Addrs: []netip.Prefix{netip.PrefixFrom(internetAddr, 24)}},
	})
	if err != nil {
		return err
	}
	return web.Route(netip.MustParsePrefix("0.0.0.0/0"), internetAddr, s.server)
}

// apply is what `floodwall apply policy.yaml` does, on the server. It returns how long it took.
func (s *scene) apply(ctx context.Context) (took time.Duration, err error) {
	start := time.Now()
	err = s.server.Host.Do(func() error {
		return urgently(func() error {
			compiled, err := control.Compile(s.script.file)
			if err != nil {
				return err
			}
			_, err = s.instance.Apply(ctx, compiled, control.ApplyOptions{})
			return err
		})
	})
	return time.Since(start), err
}

func (s *scene) unload(ctx context.Context) error {
	return s.server.Host.Do(func() error { return s.instance.Unload(ctx) })
}

func (s *scene) status() (status *control.Status, err error) {
	err = s.server.Host.Do(func() (err error) {
		status, err = s.instance.Status(context.Background())
		return err
	})
	return status, err
}

// close gives up the file systems, and with them whatever of Floodwall is still loaded.
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
