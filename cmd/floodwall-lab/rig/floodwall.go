// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// Applied is a policy that was applied at a site, and its compiled program. The instance is already unloaded. The program exists until it is closed.
type Applied struct {
	*control.Applied
	Program *ebpf.Program
	Seconds float64 // from the policy file to enforcement, as `floodwall apply` takes
	Bytes   uint64  // of kernel memory in the program's maps
}

// Apply applies a policy as the command does, calls use with the running instance, and unloads it. The text is the policy without its devices.
// Apply returns ctx's error as soon as ctx ends. Work that goes on then ends with the process; nothing of it is visible outside.
func (s *Site) Apply(ctx context.Context, text string, use func(context.Context, control.Instance) error) (a *Applied, err error) {
	done := make(chan error, 1)
	var applied *Applied
	go func() {
		var err error
		applied, err = s.applyOnce(ctx, text, use)
		done <- err
	}()
	select {
	case err := <-done:
		return applied, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Site) applyOnce(ctx context.Context, text string, use func(context.Context, control.Instance) error) (a *Applied, err error) {
	// The heap of the bench must neither speed up nor slow down the measurement: a command starts with an empty heap.
	debug.FreeOSMemory()
	held, err := s.Install(ctx, text, TargetOptions("native"))
	if err != nil {
		return nil, err
	}
	a = &Applied{Applied: held.applied, Seconds: held.seconds}
	err = s.Server.Do(func() (err error) {
		if a.Program, err = AttachedProgram(s.In.Name); err != nil {
			return err
		}
		if a.Bytes, err = MapMemory(a.Program); err != nil || use == nil {
			return err
		}
		return use(ctx, held.Instance)
	})
	if err = errors.Join(err, held.Remove()); err != nil && a.Program != nil {
		a.Program.Close()
	}
	return a, err
}

// AttachedProgram opens the XDP program of a device in the calling thread's network namespace.
func AttachedProgram(device string) (*ebpf.Program, error) {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	if dev.Attrs().Xdp == nil {
		return nil, fmt.Errorf("device %s: no program is attached", device)
	}
	return ebpf.NewProgramFromID(ebpf.ProgramID(dev.Attrs().Xdp.ProgId))
}

// MapMemory returns the kernel memory of the maps that a program uses, as the kernel accounts for it (memlock in the fdinfo
// of a map).
func MapMemory(p *ebpf.Program) (bytes uint64, err error) {
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("program: %w", err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return 0, fmt.Errorf("map %d: %w", id, err)
		}
		n, err := Memlock(m)
		m.Close()
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// Memlock returns the kernel memory of a map, in bytes.
func Memlock(m *ebpf.Map) (uint64, error) {
	info, err := m.Info()
	if err != nil {
		return 0, fmt.Errorf("map: %w", err)
	}
	n, _ := info.Memlock()
	return n, nil
}

// Expect returns a function that tests the loaded program of an instance: the program must give the expected reason for each packet. Measuring a
// program with other decisions would be useless.
func Expect(reasons map[string]string) func(context.Context, control.Instance) error {
	return func(_ context.Context, in control.Instance) error {
		for line, want := range reasons {
			spec, err := packet.Parse(line)
			if err != nil {
				return fmt.Errorf("packet %q: %w", line, err)
			}
			e, err := in.Explain(context.Background(), spec)
			if err != nil {
				return err
			}
			if e.Verdict != "drop" || e.Reason != want {
				return fmt.Errorf("packet %q: %s by %s, want drop by %s", line, e.Verdict, e.Reason, want)
			}
		}
		return nil
	}
}

// Hold applies a policy at a site. The policy is in force until the builder is closed. The text has no devices.
func (b *Builder) Hold(ctx context.Context, at *Site, policy string, o control.ApplyOptions) (*Held, error) {
	h, err := at.Install(ctx, policy, o)
	if err == nil {
		b.Owned = append(b.Owned, h.Remove)
	}
	return h, err
}

// Held is a policy that is in force at a site until it is removed.
type Held struct {
	control.Instance
	Pins    *Pins
	site    *Site
	applied *control.Applied
	seconds float64 // from the policy file to enforcement, as `floodwall apply` takes
}

// Install applies a policy. The text has no devices.
func (s *Site) Install(ctx context.Context, text string, o control.ApplyOptions) (*Held, error) {
	file, forget, err := TempFile("policy.yaml", func(w io.Writer) error {
		_, err := io.WriteString(w, s.devices()+text)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer forget()
	p, err := newPins()
	if err != nil {
		return nil, err
	}
	h := &Held{Instance: control.Instance{Dir: p.dir(Pinned)}, Pins: p, site: s}
	err = s.Server.Do(func() error {
		start := time.Now()
		read, err := policy.Read(file)
		if err == nil {
			h.applied, err = h.Apply(ctx, read, o)
		}
		h.seconds = time.Since(start).Seconds()
		return err
	})
	if err != nil {
		_ = p.close() // the first error is the useful one
		return nil, err
	}
	return h, nil
}

// Remove removes the policy.
func (h *Held) Remove() error {
	unloaded := h.site.Server.Do(func() error { return h.Unload(context.Background()) })
	return errors.Join(unloaded, h.Pins.close())
}

// Pinned is the name of an instance in a file system of its own.
const Pinned = "floodwall"

// TargetOptions returns options that put a policy to a place. It is a target (auto, xdp, nftables or iptables), or a mode of target xdp (native, tc).
// Native is for programs that are opened: xdp alone takes mode tc where the policy's answers would be lost.
func TargetOptions(target string) control.ApplyOptions {
	return map[string]control.ApplyOptions{
		"auto": {}, "xdp": {Target: "xdp"}, "native": {Target: "xdp", Mode: datapath.Native}, "tc": {Target: "xdp", Mode: datapath.TC},
		"nftables": {Target: "nftables"}, "iptables": {Target: "iptables"},
	}[target]
}

// Pins is a BPF file system that is mounted nowhere. Its pins disappear when it is closed, or when the process ends for any reason.
type Pins struct{ Root *os.File }

func newPins() (*Pins, error) {
	fs, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("new BPF file system: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("new BPF file system: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("new BPF file system: %w", err)
	}
	return &Pins{os.NewFile(uintptr(fd), "bpf")}, nil
}

// dir returns a path of this process to a directory in the file system.
func (p *Pins) dir(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", p.Root.Fd(), name) }

func (p *Pins) close() error { return p.Root.Close() }
