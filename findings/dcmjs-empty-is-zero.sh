#!/bin/sh
# dcmjs 0.51.1 (npm): an attribute that DICOM sends without a value is the number 0 if its type is binary (US, SL, FL,
# FD, UL, AT): an echo time that is not known is 0, and the file that is written from it says 0 to all others.
#
# An attribute of type 2 is sent, and is empty when its value is not known (PS3.5, 7.4.3). Numbers that are written
# as text (DS, IS) come as null, and are empty again. Text of one value (UT, PS3.5, 6.2) in which a backslash is
# no separator is taken apart at it. pydicom 3.0.2 writes the file, and reads what dcmjs makes of it. Seen (as
# pydicom has it; as dcmjs does; as pydicom reads dcmjs's file):
#
#   FD EffectiveEchoTime: None; 0; 0.0
#   FD DiffusionBValue: None; 0; 0.0
#   US PixelPaddingValue: None; 0; 0
#   SL ReferencePixelX0: None; 0; 0
#   UL TemporalPositionIndex: None; 0; 0
#   FL RecommendedDisplayFrameRateInFloat: None; 0; 0.0
#   DS SliceThickness: None; null; None
#   IS ExposureTime: None; null; None
#   UT TextValue: 'left\\right'; ["left","right"]; 'left\\right'
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pydicom==3.0.2
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts dcmjs@0.51.1 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > copy.js <<'END'
const { readFileSync, writeFileSync } = require('node:fs');
const { DicomMessage, DicomMetaDictionary } = require('dcmjs').data;
const file = readFileSync('first.dcm');
const data = DicomMessage.readFile(file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength));
writeFileSync('found.json', JSON.stringify(DicomMetaDictionary.naturalizeDataset(data.dict)));
writeFileSync('second.dcm', Buffer.from(data.write()));
END
cat > look.py <<'END'
import json
import pathlib
import subprocess

import pydicom
from pydicom.dataset import Dataset, FileMetaDataset

IMAGE = "1.2.840.10008.5.1.4.1.1.2"
EMPTY = ("EffectiveEchoTime", "DiffusionBValue", "PixelPaddingValue", "ReferencePixelX0")
EMPTY += ("TemporalPositionIndex", "RecommendedDisplayFrameRateInFloat", "SliceThickness", "ExposureTime")

first = Dataset()
first.file_meta = FileMetaDataset()
first.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
first.file_meta.MediaStorageSOPClassUID = first.SOPClassUID = IMAGE
first.file_meta.MediaStorageSOPInstanceUID = first.SOPInstanceUID = "1.2.3"
first.PixelRepresentation = 0
for name in EMPTY:
    setattr(first, name, None)
first.TextValue = "left\\right"
first.save_as("first.dcm", enforce_file_format=True)
subprocess.run(["node", "copy.js"], check=True)
found = json.loads(pathlib.Path("found.json").read_text())
first, second = pydicom.dcmread("first.dcm"), pydicom.dcmread("second.dcm")
for name in (*EMPTY, "TextValue"):
    shown = json.dumps(found[name], separators=(",", ":"))
    print(f"{first[name].VR} {name}: {first[name].value!r}; {shown}; {second[name].value!r}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
