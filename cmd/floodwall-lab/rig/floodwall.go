// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// Applied is a policy that was applied at a site, and its compiled program. The instance is already unloaded. The program exists until it is closed.
type Applied struct {
	*control.Applied
	Program *ebpf.Program
	Seconds float64 // from the policy file to enforcement: what `floodwall apply` takes
	Bytes   uint64  // of kernel memory in the program's maps
}

// Apply applies a policy as the command does, calls use with the running instance, and unloads it. The text is the policy without its devices.
// Apply returns ctx's error as soon as ctx ends. Work that goes on then ends with the process; nothing of it is visible outside.
func (s *Site) Apply(ctx context.Context, text string, use func(context.Context, control.Instance) error) (*Applied, error) {
	dir, err := os.MkdirTemp("", "floodwall-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(s.devices()+text), 0o600); err != nil {
		return nil, err
	}
	p, err := newPins()
	if err != nil {
		return nil, err
	}
	type result struct {
		*Applied
		error
	}
	done := make(chan result, 1)
	go func() {
		defer p.close()
		a, err := s.applyFile(ctx, file, control.Instance{Dir: p.dir("floodwall")}, use)
		done <- result{a, err}
	}()
	select {
	case r := <-done:
		return r.Applied, r.error
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Site) applyFile(
	ctx context.Context, file string, in control.Instance, use func(context.Context, control.Instance) error,
) (a *Applied, err error) {
	// The heap of the bench must neither speed up nor slow down the measurement: a command starts with an empty heap.
	debug.FreeOSMemory()
	err = s.Server.Do(func() (err error) {
		start := time.Now()
		p, err := policy.Read(file)
		if err != nil {
			return err
		}
		did, err := in.Apply(ctx, p, TargetOptions("native"))
		if err != nil {
			return err
		}
		a = &Applied{Applied: did, Seconds: time.Since(start).Seconds()}
		defer func() { err = errors.Join(err, in.Unload(ctx)) }()
		if a.Program, err = AttachedProgram(s.In.Name); err != nil {
			return err
		}
		if a.Bytes, err = MapMemory(a.Program); err != nil || use == nil {
			return err
		}
		return use(ctx, in)
	})
	if err != nil && a != nil && a.Program != nil {
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
