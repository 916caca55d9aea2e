// presigned.mjs ENDPOINT KEY SECRET: puts an object by a presigned URL as a web page does, and reads it by another.
import { GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const [endpoint, accessKeyId, secretAccessKey] = process.argv.slice(2);
const client = new S3Client({ endpoint, region: "us-east-1", forcePathStyle: true, credentials: { accessKeyId, secretAccessKey } });
const place = { Bucket: "films", Key: "of a page ä" };

const upload = await getSignedUrl(client, new PutObjectCommand({ ...place, ContentType: "video/mp4" }));
const put = await fetch(upload, { method: "PUT", body: "bytes", headers: { "content-type": "video/mp4" } });
console.log(new URL(upload).searchParams.get("x-amz-checksum-crc32"), put.status, await put.text());

const got = await fetch(await getSignedUrl(client, new GetObjectCommand(place)));
console.log(got.status, got.headers.get("content-type"), await got.text());
