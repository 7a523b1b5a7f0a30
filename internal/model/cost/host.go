package cost

import "github.com/floodwall/floodwall/internal/os/machine"

// ThisHost identifies the host that this process runs on.
func ThisHost() (Host, error) {
	release, version, err := machine.Kernel()
	if err != nil {
		return Host{}, err
	}
	cpus, err := machine.ReadCPUs()
	if err != nil {
		return Host{}, err
	}
	return Host{
		Kernel: release + " " + version, CPU: cpus.Model, Cores: cpus.Online, Mitigations: machine.Text(machine.Mitigations()),
	}, nil
}
