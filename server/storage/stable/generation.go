package stable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// generationSize is the size of the generation file: a number and its CRC-32C. It fits into one sector, which
// disks write completely or not at all.
const generationSize = 8 + crc32.Size

// generation is the file that holds the generation of the last completed write.
type generation struct{ file *os.File }

func encodeGeneration(number uint64) []byte {
	data := binary.BigEndian.AppendUint64(nil, number)
	return binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
}

// readGeneration returns the number in the file. found is false if the file does not exist.
func readGeneration(path string) (number uint64, found bool, err error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("read the generation of term and vote: %w", err)
	case len(data) != generationSize || crc32.Checksum(data[:8], castagnoli) != binary.BigEndian.Uint32(data[8:]):
		return 0, false, fmt.Errorf("%w: the checksum of %s is wrong", segment.ErrDamaged, path)
	}
	return binary.BigEndian.Uint64(data), true, nil
}

// createGeneration creates the file with the number 0, unless another process is faster. The file appears
// complete or not at all.
func createGeneration(path string) error {
	unfinished, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	_, err = unfinished.Write(encodeGeneration(0))
	if err = errors.Join(err, unfinished.Sync(), unfinished.Close()); err == nil {
		if err = os.Link(unfinished.Name(), path); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err = errors.Join(err, os.Remove(unfinished.Name())); err == nil {
		err = segment.Dir(filepath.Dir(path)).Sync()
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func openGeneration(path string) (*generation, error) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &generation{file}, nil
}

// write replaces the number durably.
func (g *generation) write(number uint64) error {
	if _, err := g.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := g.file.Write(encodeGeneration(number)); err != nil {
		return err
	}
	return g.file.Sync()
}

func (g *generation) close() error { return g.file.Close() }
